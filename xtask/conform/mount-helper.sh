# What mount(8) and umount(8) call for file systems of the type fuse.conquest while xfstests run, as
# `mount.fuse.conquest SOURCE DIRECTORY [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]` and
# `umount.fuse.conquest DIRECTORY [-flnrv] [-N NAMESPACE] [-t TYPE]`. The store that is called
# NAME-source is in the directory NAME.home of the room, whose path is put before this text.
set -eu
case ${0##*/} in
umount.*)
    directory=$1
    shift
    lazy=
    while getopts flnrvN:t: option; do
        [ "$option" != l ] || lazy=--lazy
    done
    exec "$ROOM/bin/conquest" umount $lazy "$directory"
    ;;
esac
source=$1
name=${source%-source}
directory=$2
shift 2
options=rw
while getopts sfnvN:o:t: option; do
    [ "$option" != o ] || options=$OPTARG
done
case ,$options, in
*,remount,*) exec mount -i -o "$options" "$directory" ;;
esac
# mount(8) keeps to itself what is the default of other file systems.
exec "$ROOM/bin/conquest" mount -o "suid,dev,$options,fsname=$source" "$ROOM/$name.home/store" "$directory"

# The file system is the upper layer of an overlay: it has whiteouts, opaque directories and what
# was copied up.
. "$DATA/lib.sh"
make_tree "$SCRATCH/lower"
mkdir upper work merged tree
mount -t overlay overlay -o "lowerdir=$SCRATCH/lower,upperdir=$PWD/upper,workdir=$PWD/work" merged
trap 'umount -l merged' EXIT
echo more >> merged/sizes/4096
chmod 600 merged/sizes/2047
touch -h -d '2002-01-01' merged/links/dangling
ln merged/sizes/65536 merged/sizes/second
setfattr -n user.new -v value merged/sizes/1
rm merged/sizes/0 merged/names/-dash
rm -r merged/deep
mkdir merged/deep
echo new > merged/deep/new
mv merged/links merged/moved
mv merged/names/'*' merged/star
mkdir merged/made
for ((i = 0; i < 20 * SCALE; i++)); do echo "$i" > "merged/made/$i"; done
rm merged/made/?
expect 'whiteouts' "$(find upper -type c -name -dash | wc -l)" 1
expect 'what shows through an opaque directory' "$(ls merged/deep)" new
[ ! -e merged/sizes/0 ] || fail 'what was removed is still there'
expect 'what was appended' "$(tail -c 5 merged/sizes/4096)" more
umount merged
mount -t overlay overlay -o "lowerdir=$SCRATCH/lower,upperdir=$PWD/upper,workdir=$PWD/work" merged
[ ! -e merged/sizes/0 ] || fail 'what was removed is there again'
cp -a merged/. tree/
umount merged
trap - EXIT
rm -r work upper merged

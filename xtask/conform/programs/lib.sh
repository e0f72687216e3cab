# What the cases share. A case runs in an empty directory of the file system that is judged, and
# leaves in `tree` what has to be the same on every file system. Given to it:
#   SCALE    how much: 1 for the short variant, 10 for the full one
#   SCRATCH  an empty directory of another file system
#   CACHE    a directory that all runs share, for what is no part of a case
#   DATA     the directory of the cases
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8 TZ=UTC

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect WHAT ACTUAL EXPECTED
expect() {
    [ "$2" = "$3" ] || fail "$1: $2, not $3"
}

# The text $1 again and again, with @ as 1, 2, 3 and so on, until nobody reads it.
count_up() {
    local i=0
    while :; do
        i=$((i + 1))
        echo "${1//@/$i}"
    done
}

# Waits until none of the files is empty.
await_all() {
    local file tries
    for file in "$@"; do
        for ((tries = 0; tries < 2400; tries++)); do
            [ ! -s "$file" ] || continue 2
            sleep 0.05
        done
        fail "nothing came into $file within two minutes"
    done
}

# Everything that a tree can have, with times of the past, in the new directory $1.
make_tree() {
    local at=$1 size name
    mkdir -p "$at/empty" "$at/deep/a/b/c/d" "$at/sizes" "$at/names" "$at/links" "$at/modes"
    for size in 0 1 2047 2048 4095 4096 4097 65536 $((300000 * SCALE)); do
        head -c "$size" < <(yes "size $size") > "$at/sizes/$size"
    done
    truncate -s 8M "$at/sizes/sparse"
    printf middle | dd of="$at/sizes/sparse" bs=1 seek=3000000 conv=notrunc status=none
    for name in -dash 'blank and tab	' $'new\nline' $'\xff\xfe' 'quote"'\' '*' "$(printf '%0255d' 7)"; do
        echo "$name" > "$at/names/$name"
    done
    ln -s nowhere "$at/links/dangling"
    ln -s ../sizes/4096 "$at/links/relative"
    ln -s "/$(printf 'long/%.0s' {1..200})" "$at/links/long"
    for name in one two three; do
        ln "$at/sizes/4097" "$at/links/$name"
    done
    ln "$at/links/dangling" "$at/links/also-dangling"
    mkfifo -m 640 "$at/modes/fifo"
    mknod -m 600 "$at/modes/char" c 1 3
    mknod -m 660 "$at/modes/block" b 7 200
    for name in 0000 0444 0755 1755 2755 4755 6711; do
        echo "$name" > "$at/modes/file-$name"
        mkdir "$at/modes/dir-$name"
        chown 1234:4321 "$at/modes/file-$name" "$at/modes/dir-$name"
        chmod "$name" "$at/modes/file-$name" "$at/modes/dir-$name"
    done
    setfattr -n user.empty "$at/sizes/1"
    setfattr -n user.long -v "$(printf '%01500d' 3)" "$at/sizes/1"
    setfattr -n trusted.binary -v 0x00ff0a00 "$at/deep"
    setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 "$at/modes/file-0755"
    setfacl -m u:1234:rw,g:4321:r "$at/sizes/4095"
    setfacl -m u:1235:rwx -d -m u:1236:rx "$at/deep/a"
    find "$at" -depth -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
}

# Everything that a tree can have goes into archives and comes out again.
. "$DATA/lib.sh"
make_tree source
options=(--xattrs --xattrs-include='*' --acls --numeric-owner --sparse --format=posix)
tar -C source "${options[@]}" -cf whole.tar .
tar -C source "${options[@]}" -czf whole.tar.gz .
mkdir tree tree/plain tree/packed
tar -C tree/plain "${options[@]}" -xpf whole.tar
tar -C tree/packed "${options[@]}" -xpzf whole.tar.gz
tar -C tree/plain "${options[@]}" -df whole.tar
tar -C tree/packed "${options[@]}" -df whole.tar
rm -r source

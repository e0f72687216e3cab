# rsync -aHAX copies everything that a tree can have, then only what has changed.
. "$DATA/lib.sh"
make_tree source
mkdir tree tree/copy tree/inplace
rsync -aHAX --sparse --numeric-ids source/ tree/copy/
rsync -aHAX --numeric-ids --inplace source/ tree/inplace/
for copy in copy inplace; do
    left=$(rsync -aHAXin --checksum --numeric-ids --delete source/ "tree/$copy/")
    expect "what differs in $copy" "$left" ''
done
echo more >> source/sizes/2048
touch -d '2002-01-01' source/sizes/2048
rm source/links/two
mv source/names source/renamed
touch -d '2002-01-01' source source/links
for copy in copy inplace; do
    rsync -aHAX --numeric-ids --delete source/ "tree/$copy/"
    left=$(rsync -aHAXin --checksum --numeric-ids --delete source/ "tree/$copy/")
    expect "what differs in $copy after changes" "$left" ''
done
rm -r source

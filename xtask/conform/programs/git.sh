# A history of many files is made, cloned in both ways, collected and checked.
. "$DATA/lib.sh"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
# Collecting in the background would take away objects while they are cloned.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost GIT_AUTHOR_DATE='2001-01-01T00:00:00Z'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost GIT_COMMITTER_DATE='2001-01-01T00:00:00Z'
files=$((1000 * SCALE))

git init -q -b main origin
for ((i = 0; i < 50; i++)); do mkdir "origin/dir-$i"; done
awk -v files="$files" 'BEGIN {
    for (i = 0; i < files; i++) {
        name = sprintf("origin/dir-%d/file-%d", i % 50, i)
        for (line = 0; line < i % 40; line++) print "file", i, "line", line > name
        printf "" > name
        close(name)
    }
}'
ln -s file-0 origin/dir-0/link
chmod +x origin/dir-1/file-1
git -C origin add -A
git -C origin commit -q -m first
expect 'files in the first commit' "$(git -C origin ls-tree -r --name-only HEAD | wc -l)" $((files + 1))
git -C origin mv dir-2 moved
git -C origin rm -q -r dir-3
for ((i = 0; i < files; i += 50)); do echo changed >> "origin/dir-0/file-$i"; done
git -C origin commit -q -a -m second

git clone -q origin linked
git clone -q "file://$PWD/origin" sent
for repository in origin linked sent; do
    git -C $repository gc -q --prune=now
    git -C $repository fsck --full --strict --no-progress
    expect "changes in $repository" "$(git -C $repository status --porcelain | wc -l)" 0
    expect "commits in $repository" "$(git -C $repository rev-list --count HEAD)" 2
done
expect 'the same history' "$(git -C sent rev-parse HEAD)" "$(git -C origin rev-parse HEAD)"
git -C linked checkout -q -b other HEAD~1
git -C linked checkout -q main
# The index has numbers and times of inodes.
mkdir tree
mv linked/.git linked.git
mv linked tree/linked
mv sent/.git sent.git
mv sent tree/sent
git -C origin ls-tree -r HEAD > tree/list

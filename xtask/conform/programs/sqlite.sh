# Four writers of one SQLite database are killed; what they were told is kept, is. sqlite.sh MODE.
. "$DATA/lib.sh"
mode=$1
mkdir tree
db=database
expect 'the journal mode' "$(sqlite3 $db "PRAGMA journal_mode=$mode;")" "$mode"
sqlite3 $db 'CREATE TABLE t(writer INTEGER, i INTEGER, filler TEXT, PRIMARY KEY(writer, i));
             CREATE INDEX by_filler ON t(filler);'
# Who finds the database locked tries again every 100 ms, and the others hardly ever leave it
# unlocked: so one of them may have to wait for long.
for round in 1 2 3; do
    writers=()
    for w in 1 2 3 4; do
        stdbuf -oL sqlite3 -bail -cmd '.timeout 100000' -cmd 'PRAGMA synchronous=FULL;' $db \
            < <(count_up "INSERT INTO t VALUES($round$w, @, hex(randomblob(200))); SELECT @;") \
            > "acknowledged-$round$w" &
        writers+=($!)
    done
    await_all "acknowledged-$round"{1..4}
    sleep "$((1 + SCALE / 5))"
    kill -9 "${writers[@]}"
    wait "${writers[@]}" 2> /dev/null || true
    expect "integrity after killing, round $round" "$(sqlite3 $db 'PRAGMA integrity_check;')" ok
    for w in 1 2 3 4; do
        last=$(tail -n 1 "acknowledged-$round$w")
        there=$(sqlite3 $db "SELECT count(*) FROM t WHERE writer=$round$w AND i<=$last;")
        expect "rows of writer $w in round $round" "$there" "$last"
        # At most one that was not acknowledged may be there.
        more=$(sqlite3 $db "SELECT count(*) FROM t WHERE writer=$round$w AND i>$last;")
        [ "$more" -le 1 ] || fail "$more rows of writer $w that were not acknowledged"
    done
done
sqlite3 $db "DELETE FROM t; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<$((2000 * SCALE)))
    INSERT INTO t SELECT 0, i, printf('%08d', i*7919%10007) FROM n; VACUUM;"
expect 'integrity in the end' "$(sqlite3 $db 'PRAGMA integrity_check;')" ok
sqlite3 $db 'SELECT i, filler FROM t ORDER BY filler, i;' > tree/rows

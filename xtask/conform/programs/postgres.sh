# A PostgreSQL of an ordinary user is killed under load; what clients were told is kept, is.
. "$DATA/lib.sh"
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
user=fsgqa
as_user() { setpriv --reuid $user --regid $user --clear-groups env HOME="$PWD" "$@"; }
mkdir tree
chown $user: .
chmod 700 .
as_user mkdir sockets
as_user "$bin/initdb" -D data -k -A trust -E UTF8 --no-locale > initdb.log
export PGHOST="$PWD/sockets" PGUSER=$user PGDATABASE=postgres
# The address of a socket has room for so many bytes.
[ ${#PGHOST} -lt 90 ] || fail "the path $PGHOST is too long for a socket"
start() {
    # What a server leaves that is killed goes when the last of its processes has noticed.
    for _ in {1..100}; do
        try_start && return
        tail -n 2 server.log | grep -q 'still in use' ||
            fail "the server ended: $(tail -n 3 server.log)"
        sleep 0.2
    done
    fail "the killed server's processes do not end: $(tail -n 3 server.log)"
}
try_start() {
    # In a process of its own, not of a shell, so that it is the server that is killed.
    setpriv --reuid $user --regid $user --clear-groups env HOME="$PWD" \
        "$bin/postgres" -D data -k "$PGHOST" -c listen_addresses= >> server.log 2>&1 &
    server=$!
    for _ in {1..600}; do
        "$bin/pg_isready" -q && return
        kill -0 $server 2> /dev/null || return 1
        sleep 0.1
    done
    fail "the server did not come up within a minute: $(tail -n 3 server.log)"
}
sql() { "$bin/psql" -X -q -t -A -v ON_ERROR_STOP=1 "$@"; }
start
sql -c 'CREATE TABLE t(client int, i int, filler text, PRIMARY KEY(client, i));'
"$bin/pgbench" -i -q -s "$SCALE" 2> pgbench.log
"$bin/pgbench" -c 4 -j 2 -t $((50 * SCALE)) >> pgbench.log 2>&1 ||
    fail "pgbench: $(tail -n 3 pgbench.log)"

for round in 1 2; do
    clients=()
    for c in 1 2 3 4; do
        insert="INSERT INTO t VALUES($round$c, @, repeat('x', 300));"
        sql < <(count_up "$insert"$'\n''\echo @') > "acknowledged-$round$c" 2> "errors-$round$c" &
        clients+=($!)
    done
    await_all "acknowledged-$round"{1..4}
    sleep "$((2 + SCALE / 5))"
    children=$(cat "/proc/$server/task/$server/children")
    # The server's own children notice its death by themselves; killed at once they can't tidy up.
    kill -9 $server $children 2> /dev/null || fail 'the server was gone before it was killed'
    wait $server "${clients[@]}" || true
    start
    for c in 1 2 3 4; do
        last=$(tail -n 1 "acknowledged-$round$c")
        there=$(sql -c "SELECT count(*) FROM t WHERE client=$round$c AND i<=$last;")
        expect "rows of client $c in round $round" "$there" "$last"
    done
done
sql -c 'CREATE TABLE fixed AS SELECT i, md5(i::text) AS text FROM generate_series(1, 5000) AS i;'
balance=$(sql -c 'SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches);')
expect 'that the sums of pgbench agree' "$balance" t
"$bin/pg_amcheck" --install-missing -d postgres
sql -c 'SELECT * FROM fixed ORDER BY text' > tree/rows
kill -INT $server
wait $server || fail "the server did not end well: $(tail -n 3 server.log)"
as_user "$bin/pg_checksums" --check -D data > checksums.log || fail "$(tail -n 3 checksums.log)"

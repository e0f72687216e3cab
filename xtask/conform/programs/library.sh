# A program and a shared library run from the file system, are replaced while they run, and can't be
# written to meanwhile.
. "$DATA/lib.sh"
mkdir tree
cd tree
echo 'int answer(void) { return 42; }' > library.c
echo 'int answer(void) { return 43; }' > newer.c
cat > program.c <<'END'
#include <stdio.h>
#include <unistd.h>
int answer(void);
int main(int argc, char **argv) {
    char line;
    printf("%d\n", answer());
    fflush(stdout);
    if (argc > 1 && read(0, &line, 1) < 0) return 1;
    printf("%d\n", answer());
    return 0;
}
END
cc -O1 -fPIC -shared -o liblibrary.so library.c
cc -O1 -fPIC -shared -o newer.so newer.c
cc -O1 -o program program.c -L. -llibrary -Wl,-rpath,'$ORIGIN'
expect 'the answer' "$(./program | sort -u)" 42
mkfifo ../pipe
./program wait < ../pipe > ../said &
running=$!
exec 3> ../pipe
for _ in {1..500}; do
    [ -s ../said ] && break
    sleep 0.02
done
(: >> program) 2> ../busy && fail 'a running program was opened for writing'
grep -q 'busy' ../busy || fail "opening a running program: $(cat ../busy)"
mv newer.so liblibrary.so
echo >&3
exec 3>&-
wait $running
expect 'the answer of who began before' "$(sort -u ../said)" 42
expect 'the answer of who begins after' "$(./program | sort -u)" 43
printf '#!/bin/sh\necho "script $1"\n' > script
chmod +x script
expect 'a script' "$(./script here)" 'script here'

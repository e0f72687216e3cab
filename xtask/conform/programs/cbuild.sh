# A generated project in C is built in parallel; what is newer decides what is built again.
. "$DATA/lib.sh"
units=$((20 * SCALE))
mkdir tree
cd tree
{
    echo 'CFLAGS = -O1 -MMD -MP'
    echo "OBJECTS = $(for ((i = 0; i < units; i++)); do printf 'unit%d.o ' "$i"; done)"
    printf 'program: main.o libunits.a\n\t$(CC) -o $@ main.o libunits.a\n'
    printf 'libunits.a: $(OBJECTS)\n\trm -f $@\n\t$(AR) rcD $@ $(OBJECTS)\n'
    echo '-include $(wildcard *.d)'
} > Makefile
echo 'int base(void);' > shared.h
{
    echo '#include <stdio.h>'
    echo 'int base(void) { return 1; }'
    for ((i = 0; i < units; i++)); do echo "int unit$i(int);"; done
    echo 'int main(void) { int sum = 0;'
    for ((i = 0; i < units; i++)); do echo "    sum += unit$i($i);"; done
    echo '    printf("%d\n", sum); return 0; }'
} > main.c
for ((i = 0; i < units; i++)); do
    printf '#include "shared.h"\nint unit%d(int x) { return x * base(); }\n' "$i" > "unit$i.c"
done
make -s -j 8
sum=$((units * (units - 1) / 2))
expect 'the result' "$(./program)" "$sum"
make -q || fail 'make finds something to do after building all'
# Later than any file that was built, by the clock that files have.
sleep 0.05
printf '#include "shared.h"\nint unit3(int x) { return x * base() + 100; }\n' > unit3.c
make -j 8 > ../second
expect 'compiled again after one change' "$(grep -c -- '-c ' ../second)" 1
expect 'the result after the change' "$(./program)" $((sum + 100))
sleep 0.05
touch shared.h
make -j 8 > ../third
expect 'compiled again after a change for all' "$(grep -c -- '-c ' ../third)" "$units"
make -q || fail 'make finds something to do in the end'

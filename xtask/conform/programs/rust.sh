# cargo builds and tests a small crate without a network; the second build finds nothing to do.
. "$DATA/lib.sh"
export CARGO_HOME="$PWD/home" CARGO_TERM_COLOR=never
unset CARGO_TARGET_DIR RUSTFLAGS
mkdir -p crate/src/bin tree
cd crate
printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml
for ((i = 0; i < 5 * SCALE; i++)); do
    printf '/// Adds.\npub fn add%d(x: u64) -> u64 { x + %d }\n' "$i" "$i" > "src/unit$i.rs"
    echo "pub mod unit$i;" >> src/lib.rs
done
cat >> src/lib.rs <<'END'
#[test]
fn adds() {
    assert_eq!(unit3::add3(4), 7);
}
END
echo 'fn main() { println!("{}", small::unit4::add4(38)); }' > src/bin/tool.rs
cargo build --offline
expect 'the result' "$(target/debug/tool)" 42
cargo test --offline
cargo build --offline 2> ../again
grep -q Compiling ../again && fail 'cargo builds again what is built'
sleep 0.05
echo 'fn main() { println!("{}", small::unit4::add4(39)); }' > src/bin/tool.rs
cargo build --offline --release
cargo build --offline
expect 'the result after a change' "$(target/debug/tool)" 43
expect 'the result of the release' "$(target/release/tool)" 43
cargo clean --offline
[ ! -e target ] || fail 'cargo clean left something'
cp -a Cargo.toml Cargo.lock src ../tree

//! Inputs drawn at random: `FUZZ_SECONDS=60 cargo test -p farside-card fuzzing` goes on for a minute.

#[path = "../../../../link/tests/common/rounds.rs"]
pub(crate) mod rounds;

use rounds::rounds;

#[test]
fn tables_say_what_was_mapped_whatever_is_done() {
    let twentieth = |input: &[u8]| super::tables(input) / 20;
    rounds("tables", 300, |random| random.bytes(1600), twentieth);
}

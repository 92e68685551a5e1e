//! `cargo +nightly fuzz run ledger` in the folder above.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    farside_lend::fuzzing::ledger(input);
});

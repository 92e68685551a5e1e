//! `cargo +nightly fuzz run tables` in the folder above.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    farside_card::tables::fuzzing::tables(input);
});

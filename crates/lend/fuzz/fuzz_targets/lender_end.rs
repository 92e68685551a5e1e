//! `cargo +nightly fuzz run lender_end` in the folder above.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    farside_lend::fuzzing::lender_end(input);
});

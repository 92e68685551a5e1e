//! `cargo +nightly fuzz run endpoint` in the folder above.
#![no_main]

#[path = "../../../link/tests/common/hostile.rs"]
#[allow(dead_code)]
mod hostile;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hostile::endpoint(input);
});

//! A hostile server: `cargo +nightly fuzz run client` in the folder above.
#![no_main]

#[path = "../../tests/common/hostile.rs"]
#[allow(dead_code)]
mod hostile;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hostile::client(input);
});

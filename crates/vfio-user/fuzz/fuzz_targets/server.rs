//! A hostile client: `cargo +nightly fuzz run server` in the folder above.
#![no_main]

#[path = "../../tests/common/hostile.rs"]
#[allow(dead_code)]
mod hostile;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hostile::server(input);
});

//! `cargo +nightly fuzz run etcd` in the folder above.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    farside_lend::fuzzing::etcd(input);
});

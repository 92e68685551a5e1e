//! The name by which programs find the shared library: its number is `FARSIDE_ABI`.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfarside.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}

//! Sizes on the command line: `64M`.

use bytesize::ByteSize;
pub(crate) use farside_cli::sweep::parse_size;

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    let text = ByteSize::b(bytes).display().iec().to_string();
    text.replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown() {
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(0), "0 B");
    }
}

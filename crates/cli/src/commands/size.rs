//! Sizes on the command line: `64M`.

pub(crate) use farside_cli::sweep::parse_size;

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];
    let fits = |(_, shift): &&(&str, u32)| bytes >> shift > 0;
    let (unit, shift) = UNITS.iter().find(fits).unwrap_or(&UNITS[3]);
    let value = bytes as f64 / f64::from(1u32 << shift);
    if value.fract() == 0.0 { format!("{value} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in
            [("4096", 4096), ("64M", 64 << 20), ("1 GiB", 1 << 30), ("2k", 2048), ("0", 0)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "64 moons", "99999999999999999999", "99999999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(0), "0 B");
    }
}

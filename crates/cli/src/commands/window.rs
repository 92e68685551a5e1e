//! A card's own memories on the command line: `64M`, or `ddr=64M,ddr=64M,hbm=16M`.

use farside::MemoryKind;
use farside_softcard::{WindowMemory, WindowPlan};

use super::size::parse_size;

/// Memories of a card's own window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Window(pub(crate) Vec<WindowMemory>);

/// One memory, or none of 0 bytes; or a list of kinds with their sizes.
pub(crate) fn parse_window(text: &str) -> Result<Window, String> {
    if text.contains('=') {
        let memories = text.split(',').map(parse_memory).collect::<Result<Vec<_>, _>>()?;
        return checked(memories);
    }
    match parse_size(text)? {
        0 => Ok(Window(Vec::new())),
        bytes => checked(vec![memory(MemoryKind::Plain, bytes)?]),
    }
}

fn parse_memory(text: &str) -> Result<WindowMemory, String> {
    let (kind, bytes) = text.split_once('=').ok_or_else(|| {
        format!("`{text}` is no memory: write its kind and its size, as in ddr=64M,hbm=16M")
    })?;
    memory(kind.parse().map_err(|error| format!("{error}"))?, parse_size(bytes)?)
}

fn memory(kind: MemoryKind, bytes: u64) -> Result<WindowMemory, String> {
    WindowMemory::of_bytes(kind, bytes).map_err(|error| error.to_string())
}

fn checked(memories: Vec<WindowMemory>) -> Result<Window, String> {
    WindowPlan::new(&memories).map_err(|error| error.to_string())?;
    Ok(Window(memories))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_read_with_their_kinds_and_nonsense_says_what_to_write() {
        let parsed = |text| parse_window(text).map(|Window(memories)| memories);
        let memory = |kind, frames| WindowMemory { kind, frames };
        assert_eq!(parsed("0"), Ok(Vec::new()));
        assert_eq!(parsed("64M"), Ok(vec![memory(MemoryKind::Plain, 16384)]));
        let both = vec![memory(MemoryKind::Ddr, 256), memory(MemoryKind::Hbm, 2)];
        assert_eq!(parsed("ddr=1M,hbm=8K"), Ok(both));
        for (text, why) in [
            ("ddr=1M,hbm", "`hbm` is no memory: write its kind and its size"),
            ("ddr=1M,", "`` is no memory"),
            ("gddr=1M", "`gddr` is no kind of memory; there are memory, ddr, hbm, bram, host"),
            ("ddr=1M,hbm=0", "hbm0 has no page"),
            ("ddr=4097", "ddr has 4097 bytes, which are no whole pages"),
            ("8T", "at most 4 TiB"),
            ("ddr=3T,hbm=2T", "at most 4 TiB"),
            ("ddr=1000T", "at most 4 TiB"),
        ] {
            let told = parsed(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
        let many = vec!["bram=4K"; 16].join(",");
        assert!(parsed(&many).unwrap_err().contains("1 to 15 memories"));
    }
}

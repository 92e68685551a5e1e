//! What the paper prints: its tables, as numbers.

use super::Transport;

/// A size of buffer in the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// As the paper writes it.
    pub name: &'static str,
    /// In pages of 4 KiB.
    pub pages: u64,
}

/// The columns of Tables I and II.
pub const SIZES: [Size; 6] = [
    Size { name: "4 kB", pages: 1 },
    Size { name: "32 kB", pages: 8 },
    Size { name: "128 kB", pages: 32 },
    Size { name: "1 MB", pages: 256 },
    Size { name: "4 MB", pages: 1_024 },
    Size { name: "32 MB", pages: 8_192 },
];

/// Times in µs, by the columns of [`SIZES`].
pub type Micros = [f64; 6];

/// Table I, ODPM: the synthetic accelerator with pages migrated on demand.
pub const fn on_demand(transport: Transport) -> Micros {
    match transport {
        Transport::Bounce => [45.7, 60.4, 160.0, 1_010.0, 3_900.0, 30_300.0],
        Transport::Peer => [33.5, 54.2, 140.0, 830.0, 3_200.0, 23_700.0],
        Transport::Ethernet => [34.4, 55.2, 150.0, 870.0, 3_310.0, 25_700.0],
    }
}

/// Table I, UMPM: the same with pages that the program migrated before.
pub const fn user_managed(transport: Transport) -> Micros {
    match transport {
        Transport::Bounce => [38.2, 47.4, 110.0, 610.0, 2_180.0, 16_900.0],
        Transport::Peer => [27.0, 41.2, 90.0, 530.0, 1_910.0, 14_800.0],
        Transport::Ethernet => [27.6, 42.1, 100.0, 520.0, 1_860.0, 14_500.0],
    }
}

/// Table II: a single migration from card to card.
pub const fn migration(transport: Transport) -> Micros {
    match transport {
        Transport::Bounce => [16.3, 24.6, 50.4, 310.0, 1_080.0, 8_420.0],
        Transport::Peer => [11.6, 16.4, 36.4, 220.0, 810.0, 6_300.0],
        Transport::Ethernet => [12.7, 18.5, 37.5, 210.0, 760.0, 5_970.0],
    }
}

/// Section V-C: the share of the finalize step at 32 MB, in percent ("30 %", "slightly over 40 %",
/// "about 45 %").
pub const fn finalize_percent(transport: Transport) -> f64 {
    match transport {
        Transport::Bounce => 30.0,
        Transport::Peer => 40.0,
        Transport::Ethernet => 45.0,
    }
}

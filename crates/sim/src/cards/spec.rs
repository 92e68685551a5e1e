//! The specification of a machine of cards: every number of the timing model, with its source.
//!
//! Immutable and read from TOML. A key that is left out has the value of the preset
//! `as-published`: the machine and the driver of the multi-FPGA SVM paper (Kalkhof and Koch,
//! *Direct Device-to-Device Physical Page Migrations in Multi-FPGA Shared Virtual Memory Systems*).
//! *Fitted* means: to Table II and to the user-managed rows of Table I, and to nothing else.

use std::path::Path;

use farside_types::{MAX_CARDS, PAGE_SIZE, Span};
use serde::{Deserialize, Serialize};

use super::CardsError;

/// A host and cards of one kind, with the software that moves pages between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CardsSpec {
    /// How many cards there are, and what joins them.
    pub machine: MachineSpec,
    /// The memory management unit of each card.
    pub mmu: MmuSpec,
    /// The page DMA of each card.
    pub dma: DmaSpec,
    /// PCI Express.
    pub pcie: PcieSpec,
    /// Ethernet between the cards.
    pub ethernet: EthernetSpec,
    /// The host's software: what the kernel and the driver cost.
    pub host: HostSpec,
    /// The processing element of each card.
    pub pe: PeSpec,
    /// What the driver is configured with.
    pub driver: DriverSpec,
}

/// How pages get from one card to another (section IV-B2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Over PCIe in two steps, through a buffer in host memory.
    Bounce,
    /// Over PCIe from endpoint to endpoint; the source's DMA pushes.
    Peer,
    /// Over 100G Ethernet.
    Ethernet,
}

impl Transport {
    /// All three, in the order of the paper's tables.
    pub const ALL: [Transport; 3] = [Transport::Bounce, Transport::Peer, Transport::Ethernet];

    /// The paper's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Bounce => "PCIe",
            Transport::Peer => "PCIe E2E",
            Transport::Ethernet => "Ethernet",
        }
    }

    /// As it is written in a specification.
    pub const fn key(self) -> &'static str {
        match self {
            Transport::Bounce => "bounce",
            Transport::Peer => "peer",
            Transport::Ethernet => "ethernet",
        }
    }
}

/// How the cards' Ethernet ports are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// A cable between each two cards; each has a receiver of its own for it.
    Direct,
    /// One port per card, all joined by a switch that adds latency.
    Switch,
}

/// `[machine]`: how many cards there are, and what joins them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MachineSpec {
    /// Number of cards, 2 to 16. Default 2 (section V).
    pub cards: u32,
    /// Pages of each card's memory. Default 262144, that is 1 GiB: more than any experiment needs;
    /// the paper's cards have more.
    pub memory_pages: u32,
    /// How pages get from card to card. Default `ethernet`.
    pub transport: Transport,
}

/// `[mmu]`: the memory management unit (section IV-A; sizes from the authors' open-source design).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MmuSpec {
    /// Clock in MHz, of which the latencies below are cycles. Default 300; assumed.
    pub clock_mhz: u32,
    /// Entries of the first TLB, fully associative. Default 32.
    pub l1_entries: u32,
    /// Its lookup in cycles. Default 2 (section IV-A).
    pub l1_cycles: u64,
    /// Entries of the second TLB. Default 1024.
    pub l2_entries: u32,
    /// Its ways. Default 4; assumed.
    pub l2_ways: u32,
    /// A lookup that goes on to it, in cycles. Default 8; assumed, the paper says that it varies.
    pub l2_cycles: u64,
    /// Entries of flexible length. Default 32.
    pub flexible_entries: u32,
    /// Most pages of one of them. Default 32768.
    pub flexible_pages_max: u32,
    /// Runs of at least this many pages get one. Default 64.
    pub flexible_pages_min: u32,
    /// Faults that the FIFO holds. Default 48.
    pub fault_entries: u32,
    /// Reads that may be in flight. Default 16 (section IV-A).
    pub reads_in_flight: u32,
    /// Writes that may be in flight. Default 16 (section IV-A).
    pub writes_in_flight: u32,
    /// Pages of the card's memory for translation tables (docs/card-interface.md, section 8), beside
    /// `machine.memory_pages`. Default 0: the paper's cards have none, and know what their TLBs hold.
    pub table_pages: u32,
    /// A read of a table in the card's memory, in cycles; a walk makes one for each level, one after the
    /// other. Default 72: reads of on-board memory of the thesis on memory management for Fletcher
    /// (conclusions), whose walker has no cache either; that these cycles are as long is assumed.
    /// Walks do not wait for each other; assumed.
    pub walk_level_cycles: u64,
}

/// `[dma]`: the page DMA. Commands of one direction are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DmaSpec {
    /// Commands that may be outstanding in a direction. Default 64 (the authors' design).
    pub commands_max: u32,
    /// Most pages of a command; they are contiguous at both ends. Default 4096 (likewise).
    pub pages_max: u32,
    /// What it costs the driver to write a command's registers, in ns. Default 100; assumed: a few
    /// posted writes over PCIe.
    pub command_ns: u64,
    /// Filling a page with zeros, in ps. Default 213333: 64 bytes a cycle at 300 MHz; assumed.
    pub fill_page_ps: u64,
}

/// `[pcie]`: PCI Express 3.0 x16. Every card has a port per direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PcieSpec {
    /// A page between host and card, in ps. Default 331500 (12.4 GB/s): half of what a page costs
    /// through the bounce buffer; fitted.
    pub page_ps: u64,
    /// Latency of a copy between host and card, in ns. Default 3400; assumed. Only its sum with
    /// `bounce_hop_ns` and `dma.command_ns` is fitted (5.0 µs).
    pub latency_ns: u64,
    /// What each of the two steps through a bounce buffer costs the software, in ns. Default 1500;
    /// see `latency_ns`.
    pub bounce_hop_ns: u64,
    /// A page from endpoint to endpoint, in ps. Default 403000 (10.2 GB/s); fitted.
    pub peer_page_ps: u64,
    /// Latency of such a copy, in ns. Default 4900; fitted, with `dma.command_ns`.
    pub peer_latency_ns: u64,
    /// A page through the root complex, which all cards share, in ps. Default 64000 (64 GB/s);
    /// assumed. Never the bottleneck with two cards.
    pub root_page_ps: u64,
}

/// `[ethernet]`: 100G Ethernet between the cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EthernetSpec {
    /// Line rate in Gbit/s. Default 100 (section IV-B2c).
    pub gbit_per_s: u64,
    /// Bytes of a page that a frame carries. Default 1024: 4 frames a page (the authors' design).
    pub frame_bytes: u64,
    /// Bytes of a frame's header. Default 14 (likewise).
    pub header_bytes: u64,
    /// Time between two frames, in ps. Default 8190: a page takes 365 ns, fitted. (Preamble, check
    /// sum and gap of the standard, 24 bytes, are 1.9 ns of it.)
    pub frame_gap_ps: u64,
    /// Latency of a copy, in ns. Default 6500; fitted, with `dma.command_ns`.
    pub latency_ns: u64,
    /// How the ports are joined. Default `direct` (section V).
    pub topology: Topology,
    /// What a switch adds to the latency of a copy, in ns. Default 1000; assumed: the paper says
    /// that it adds some (section V-A).
    pub switch_ns: u64,
}

/// `[host]`: the host's software. *Collect* is the setup step of Table III, *finalize* its last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSpec {
    /// Threads of the driver that can run at a time. Default 16: the cores of the paper's EPYC
    /// 7302P; assumed to be without locks between them.
    pub processors: u32,
    /// Collecting source pages, in ns. Default 1900; with `drain_ns` 2900: fitted.
    pub setup_ns: u64,
    /// Asking a card whether accesses are in flight, in ns. Default 1000: a read over PCIe;
    /// assumed.
    pub drain_ns: u64,
    /// Per page that is collected from a card, in ps. Default 43000; fitted.
    pub setup_page_ps: u64,
    /// Finalizing, in ns. Default 2800; fitted.
    pub finalize_ns: u64,
    /// Per page that came from a card to a card, in ps. Default 327000; fitted.
    pub finalize_page_ps: u64,
    /// Per page that is collected from the host, in ps. Default 100000; assumed: more than for
    /// device-private entries, because of pins and the LRU lists (section V-D).
    pub host_setup_page_ps: u64,
    /// Per page that came from the host, in ps. Default 369000; assumed, likewise.
    pub host_finalize_page_ps: u64,
    /// Pages of the host that a migration frees cheaply. Default 512; assumed: a processor's list
    /// of free pages.
    pub host_free_pages: u64,
    /// Each page beyond them, in ps. Default 225000: so that 32 MB to a card take 1.4 times as long
    /// as from card to card by Ethernet (section V-D: "almost 1.4x").
    pub host_free_page_ps: u64,
    /// Per page that came from a card to the host, in ps. Default 430000; assumed: more than from
    /// card to card (section V-D).
    pub to_host_finalize_page_ps: u64,
    /// Pages that one entry of the page table maps, 1 or 512; per-page costs are per entry.
    /// Default 1: the HMM interface knows only 4 KiB pages (section VI).
    pub entry_pages: u32,
    /// Giving translations of resident pages back, in ns. Default 1900: a walk of the page table,
    /// as in `setup_ns`; assumed.
    pub refill_ns: u64,
    /// Copies of fewer pages are polled for. Default 128 (section V-A: 512 kB).
    pub poll_below_pages: u32,
    /// From an interrupt until the thread that waits for it runs, in ns. Default 11500; fitted on
    /// copies that are not polled for, and taken for interrupts of faults and of the end of jobs.
    pub wake_ns: u64,
    /// Starting a job, in ns. Default 3900; fitted, with `wake_ns` at its end.
    pub launch_ns: u64,
    /// A host that had nothing to do for this long before the interrupt of a job's end, in ns, …
    /// Default 12000; assumed: the user-managed rows only say that it is between 9 and 33 µs.
    pub nap_after_ns: u64,
    /// … takes this much longer to wake, in ns. Default 10000; fitted.
    pub nap_ns: u64,
}

/// `[pe]`: the processing element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeSpec {
    /// Latency of an access to the card's own memory, in ns. Default 200; assumed.
    pub access_ns: u64,
    /// Reading, updating and writing a page of an array, in ns, besides translation and latency.
    /// Default 985; fitted: with those a page takes 1.05 µs.
    pub page_ns: u64,
}

/// `[driver]`: what the driver is configured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DriverSpec {
    /// Ask cards for accesses in flight also when no job runs there. Default true (section IV-A).
    pub always_drain: bool,
    /// Migrations under way at a time. Default 1: one after the other, as one thread does it.
    pub chains: u32,
    /// Most pages of one. Default 131072 (the authors' driver).
    pub chain_pages: u32,
    /// Bounce buffers. Default 1 (the authors' driver).
    pub bounce_buffers: u8,
    /// Pages of one. Default 1024 (likewise).
    pub bounce_pages: u32,
    /// Most faults of a batch. Default 256; a card has no more than `mmu.reads_in_flight` and
    /// `mmu.writes_in_flight` open.
    pub fault_batch: u32,
    /// Tree prefetch: fill a subtree that is more than this full, in percent. Default 100: off.
    pub density_percent: u8,
    /// Moves nearer to each other than this are a fight, in ns. Default 0: nobody looks.
    pub thrash_window_ns: u64,
}

impl Default for MachineSpec {
    fn default() -> MachineSpec {
        MachineSpec { cards: 2, memory_pages: 1 << 18, transport: Transport::Ethernet }
    }
}

impl Default for MmuSpec {
    fn default() -> MmuSpec {
        MmuSpec {
            clock_mhz: 300,
            l1_entries: 32,
            l1_cycles: 2,
            l2_entries: 1024,
            l2_ways: 4,
            l2_cycles: 8,
            flexible_entries: 32,
            flexible_pages_max: 32_768,
            flexible_pages_min: 64,
            fault_entries: 48,
            reads_in_flight: 16,
            writes_in_flight: 16,
            table_pages: 0,
            walk_level_cycles: 72,
        }
    }
}

impl Default for DmaSpec {
    fn default() -> DmaSpec {
        DmaSpec { commands_max: 64, pages_max: 4_096, command_ns: 100, fill_page_ps: 213_333 }
    }
}

impl Default for PcieSpec {
    fn default() -> PcieSpec {
        PcieSpec {
            page_ps: 331_500,
            latency_ns: 3_400,
            bounce_hop_ns: 1_500,
            peer_page_ps: 403_000,
            peer_latency_ns: 4_900,
            root_page_ps: 64_000,
        }
    }
}

impl Default for EthernetSpec {
    fn default() -> EthernetSpec {
        EthernetSpec {
            gbit_per_s: 100,
            frame_bytes: 1_024,
            header_bytes: 14,
            frame_gap_ps: 8_190,
            latency_ns: 6_500,
            topology: Topology::Direct,
            switch_ns: 1_000,
        }
    }
}

impl Default for HostSpec {
    fn default() -> HostSpec {
        HostSpec {
            processors: 16,
            setup_ns: 1_900,
            drain_ns: 1_000,
            setup_page_ps: 43_000,
            finalize_ns: 2_800,
            finalize_page_ps: 327_000,
            host_setup_page_ps: 100_000,
            host_finalize_page_ps: 369_000,
            host_free_pages: 512,
            host_free_page_ps: 225_000,
            to_host_finalize_page_ps: 430_000,
            entry_pages: 1,
            refill_ns: 1_900,
            poll_below_pages: 128,
            wake_ns: 11_500,
            launch_ns: 3_900,
            nap_after_ns: 12_000,
            nap_ns: 10_000,
        }
    }
}

impl Default for PeSpec {
    fn default() -> PeSpec {
        PeSpec { access_ns: 200, page_ns: 985 }
    }
}

impl Default for DriverSpec {
    fn default() -> DriverSpec {
        DriverSpec {
            always_drain: true,
            chains: 1,
            chain_pages: 131_072,
            bounce_buffers: 1,
            bounce_pages: 1_024,
            fault_batch: 256,
            density_percent: 100,
            thrash_window_ns: 0,
        }
    }
}

impl CardsSpec {
    /// Names that [`CardsSpec::preset`] knows.
    pub const PRESETS: &'static [&'static str] = &["as-published", "farside"];

    /// The preset of this name. `as-published`: the paper's machine with its driver's ways.
    /// `farside`: the same hardware and the same costs of software, with what this driver does
    /// by itself: tree prefetch, invalidations that nobody waits for where no job runs, two bounce
    /// buffers, and damping of fights. Two threads carry its commands out, as in a live program that
    /// asks for one thing at a time: the one that asks, and the one that listens to the cards.
    ///
    /// # Errors
    /// [`CardsError::NoSuchPreset`].
    pub fn preset(name: &str) -> Result<CardsSpec, CardsError> {
        match name {
            "as-published" => Ok(CardsSpec::default()),
            "farside" => {
                let mut spec = CardsSpec { driver: DriverSpec::farside(), ..CardsSpec::default() };
                spec.host.processors = 2;
                Ok(spec)
            }
            _ => Err(CardsError::NoSuchPreset { name: name.to_owned() }),
        }
    }

    /// Reads TOML. Keys that are left out have the value of `as-published`.
    ///
    /// # Errors
    /// [`CardsError`] that names the key: unknown keys, wrong types, values that cannot work.
    pub fn from_toml(text: &str) -> Result<CardsSpec, CardsError> {
        let spec: CardsSpec = toml::from_str(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`CardsError`] that names the file or the key.
    pub fn open(path: &Path) -> Result<CardsSpec, CardsError> {
        let unreadable = |source| CardsError::Read { path: path.to_owned(), source };
        CardsSpec::from_toml(&std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// The whole specification as TOML, as it is written beside results.
    pub fn to_toml(&self) -> String {
        // Plain tables of integers, names and booleans: serialising them has no way to fail.
        toml::to_string(self).unwrap_or_default()
    }

    /// This machine with another way from card to card.
    #[must_use]
    pub fn with_transport(&self, transport: Transport) -> CardsSpec {
        let mut spec = self.clone();
        spec.machine.transport = transport;
        spec
    }

    /// The time that a page is on the wire between two cards by Ethernet: its frames, their headers
    /// and what is between them.
    pub fn ethernet_page(&self) -> Span {
        let wire = &self.ethernet;
        let frames = (PAGE_SIZE as u64).div_ceil(wire.frame_bytes);
        let bits = (PAGE_SIZE as u64 + frames * wire.header_bytes) * 8;
        Span((bits * 1_000).div_ceil(wire.gbit_per_s) + frames * wire.frame_gap_ps)
    }

    /// Cycles of the MMU's clock as a span.
    pub(super) fn cycles(&self, cycles: u64) -> Span {
        Span(cycles * 1_000_000 / u64::from(self.mmu.clock_mhz))
    }

    /// Cards as a number of things.
    pub(super) fn cards(&self) -> usize {
        self.machine.cards as usize
    }

    /// Whether a machine can have these values.
    ///
    /// # Errors
    /// [`CardsError::Value`] names the first key that cannot work.
    pub fn check(&self) -> Result<(), CardsError> {
        for (key, value, least, most) in self.bounds() {
            if !(least..=most).contains(&value) {
                return Err(CardsError::Value { key, value, least, most });
            }
        }
        self.check_together()
    }

    fn check_together(&self) -> Result<(), CardsError> {
        let mmu = &self.mmu;
        let n = u64::from;
        let sets = mmu.l2_entries / mmu.l2_ways;
        if mmu.l2_entries % mmu.l2_ways != 0 || !sets.is_power_of_two() {
            let why = "mmu.l2_entries divided by it must be a power of two";
            return Err(CardsError::Inconsistent {
                key: "mmu.l2_ways",
                value: n(mmu.l2_ways),
                why,
            });
        }
        if mmu.flexible_pages_min > mmu.flexible_pages_max {
            let (key, value) = ("mmu.flexible_pages_min", n(mmu.flexible_pages_min));
            let why = "it must be at most mmu.flexible_pages_max";
            return Err(CardsError::Inconsistent { key, value, why });
        }
        if mmu.fault_entries < mmu.reads_in_flight.max(mmu.writes_in_flight) {
            let (key, value) = ("mmu.fault_entries", n(mmu.fault_entries));
            let why = "every read and every write in flight may fault; raise it to their number";
            return Err(CardsError::Inconsistent { key, value, why });
        }
        if ![1, 512].contains(&self.host.entry_pages) {
            let (key, value) = ("host.entry_pages", n(self.host.entry_pages));
            return Err(CardsError::Inconsistent { key, value, why: "it must be 1 or 512" });
        }
        Ok(())
    }

    /// Each value with its key, least and greatest value.
    fn bounds(&self) -> Vec<(&'static str, u64, u64, u64)> {
        const LATENCY: u64 = 1_000_000_000;
        const PAGE: u64 = 1_000_000_000;
        let n = u64::from;
        let (mmu, dma, pcie, wire) = (&self.mmu, &self.dma, &self.pcie, &self.ethernet);
        let (host, driver) = (&self.host, &self.driver);
        vec![
            ("machine.cards", n(self.machine.cards), 2, MAX_CARDS as u64),
            ("machine.memory_pages", n(self.machine.memory_pages), 1, 1 << 24),
            ("mmu.clock_mhz", n(mmu.clock_mhz), 1, 100_000),
            ("mmu.l1_entries", n(mmu.l1_entries), 1, 64),
            ("mmu.l1_cycles", mmu.l1_cycles, 0, 1_000_000),
            ("mmu.l2_entries", n(mmu.l2_entries), 1, 1 << 24),
            ("mmu.l2_ways", n(mmu.l2_ways), 1, 64),
            ("mmu.l2_cycles", mmu.l2_cycles, 0, 1_000_000),
            ("mmu.flexible_entries", n(mmu.flexible_entries), 0, 64),
            ("mmu.flexible_pages_max", n(mmu.flexible_pages_max), 1, 1 << 30),
            ("mmu.flexible_pages_min", n(mmu.flexible_pages_min), 1, 1 << 30),
            ("mmu.fault_entries", n(mmu.fault_entries), 1, 1 << 20),
            ("mmu.reads_in_flight", n(mmu.reads_in_flight), 1, 65_535),
            ("mmu.writes_in_flight", n(mmu.writes_in_flight), 1, 65_535),
            ("mmu.table_pages", n(mmu.table_pages), 0, 1 << 24),
            ("mmu.walk_level_cycles", mmu.walk_level_cycles, 0, 1_000_000),
            ("dma.commands_max", n(dma.commands_max), 1, 1 << 16),
            ("dma.pages_max", n(dma.pages_max), 1, 1 << 20),
            ("dma.command_ns", dma.command_ns, 0, LATENCY),
            ("dma.fill_page_ps", dma.fill_page_ps, 0, PAGE),
            ("pcie.page_ps", pcie.page_ps, 1, PAGE),
            ("pcie.latency_ns", pcie.latency_ns, 0, LATENCY),
            ("pcie.bounce_hop_ns", pcie.bounce_hop_ns, 0, LATENCY),
            ("pcie.peer_page_ps", pcie.peer_page_ps, 1, PAGE),
            ("pcie.peer_latency_ns", pcie.peer_latency_ns, 0, LATENCY),
            ("pcie.root_page_ps", pcie.root_page_ps, 0, PAGE),
            ("ethernet.gbit_per_s", wire.gbit_per_s, 1, 1_000_000),
            ("ethernet.frame_bytes", wire.frame_bytes, 64, PAGE_SIZE as u64),
            ("ethernet.header_bytes", wire.header_bytes, 0, 1_000),
            ("ethernet.frame_gap_ps", wire.frame_gap_ps, 0, PAGE),
            ("ethernet.latency_ns", wire.latency_ns, 0, LATENCY),
            ("ethernet.switch_ns", wire.switch_ns, 0, LATENCY),
            ("host.processors", n(host.processors), 1, 1_024),
            ("host.setup_ns", host.setup_ns, 0, LATENCY),
            ("host.drain_ns", host.drain_ns, 0, LATENCY),
            ("host.setup_page_ps", host.setup_page_ps, 0, PAGE),
            ("host.finalize_ns", host.finalize_ns, 0, LATENCY),
            ("host.finalize_page_ps", host.finalize_page_ps, 0, PAGE),
            ("host.host_setup_page_ps", host.host_setup_page_ps, 0, PAGE),
            ("host.host_finalize_page_ps", host.host_finalize_page_ps, 0, PAGE),
            ("host.host_free_pages", host.host_free_pages, 0, 1 << 32),
            ("host.host_free_page_ps", host.host_free_page_ps, 0, PAGE),
            ("host.to_host_finalize_page_ps", host.to_host_finalize_page_ps, 0, PAGE),
            ("host.refill_ns", host.refill_ns, 0, LATENCY),
            ("host.poll_below_pages", n(host.poll_below_pages), 0, 1 << 30),
            ("host.wake_ns", host.wake_ns, 0, LATENCY),
            ("host.launch_ns", host.launch_ns, 0, LATENCY),
            ("host.nap_after_ns", host.nap_after_ns, 0, LATENCY),
            ("host.nap_ns", host.nap_ns, 0, LATENCY),
            ("pe.access_ns", self.pe.access_ns, 0, LATENCY),
            ("pe.page_ns", self.pe.page_ns, 0, LATENCY),
            ("driver.chains", n(driver.chains), 1, 1 << 16),
            ("driver.chain_pages", n(driver.chain_pages), 1, 1 << 24),
            ("driver.bounce_buffers", n(driver.bounce_buffers.into()), 1, 255),
            ("driver.bounce_pages", n(driver.bounce_pages), 1, 1 << 20),
            ("driver.fault_batch", n(driver.fault_batch), 1, 65_536),
            ("driver.thrash_window_ns", driver.thrash_window_ns, 0, LATENCY),
        ]
    }
}

impl DriverSpec {
    /// The driver's own ways, on the paper's hardware.
    fn farside() -> DriverSpec {
        DriverSpec {
            always_drain: false,
            chains: 1 << 10,
            chain_pages: 8_192,
            bounce_buffers: 2,
            density_percent: 51,
            thrash_window_ns: 500_000,
            ..DriverSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        CardsSpec::from_toml(text).expect_err("must be refused").to_string()
    }

    #[test]
    fn what_is_written_beside_a_result_reads_back_as_the_same() {
        let farside = CardsSpec::preset("farside").unwrap();
        for spec in [CardsSpec::default(), farside] {
            assert_eq!(CardsSpec::from_toml(&spec.to_toml()).unwrap(), spec);
        }
        assert_eq!(CardsSpec::from_toml("").unwrap(), CardsSpec::preset("as-published").unwrap());
    }

    #[test]
    fn errors_name_the_key() {
        assert!(refused("[machine]\ncrads = 4").contains("crads"));
        assert!(refused("[machine]\ncards = 17").contains("machine.cards is 17"));
        assert!(refused("[machine]\ncards = 1").contains("machine.cards is 1"));
        assert!(refused("[mmu]\nl2_ways = 7").contains("mmu.l2_ways is 7"));
        assert!(refused("[mmu]\nreads_in_flight = 64").contains("mmu.fault_entries is 48"));
        assert!(refused("[mmu]\nflexible_pages_min = 65536").contains("flexible_pages_max"));
        assert!(refused("[host]\nentry_pages = 2").contains("host.entry_pages is 2"));
        assert!(refused("[machine]\ntransport = \"pigeon\"").contains("pigeon"));
        assert!(refused("[machine").contains("cannot be read"));
        let error = CardsSpec::open(Path::new("no/such/cards.toml")).unwrap_err().to_string();
        assert!(error.contains("no/such/cards.toml"), "{error}");
        let error = CardsSpec::preset("tapasco").unwrap_err().to_string();
        assert!(error.contains("as-published"), "{error}");
    }
}

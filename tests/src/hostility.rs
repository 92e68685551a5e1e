//! What the machine does to the driver, knob by knob. All chances are in thousandths.

/// The knobs. [`Hostility::none`] is a machine that is only slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hostility {
    /// Longest delay of a command, a completion or an event, in nanoseconds.
    pub delay_ns_max: u64,
    /// A completion comes a second time.
    pub duplicate_completion: u32,
    /// A copy or fill fails half way.
    pub copy_failure: u32,
    /// A paging call of the host fails, after some of its pages.
    pub host_failure: u32,
    /// A card refuses a command of its ring.
    pub ring_failure: u32,
    /// A copy or fill of a card's DMA or a link never answers in time; it acts, and is answered,
    /// very late.
    pub silent_copy: u32,
    /// A card that is asked which pages it wrote tells it of some of them only.
    pub untold: u32,
    /// Per hostile tick: a card's ring stands still until the card is reset.
    pub stalled_ring: u32,
    /// Per hostile tick: a card is lost, with its memory.
    pub card_lost: u32,
    /// Per hostile tick: a card is reset out of the blue.
    pub card_reset: u32,
    /// Per tick of a card: a translation falls out of its TLB.
    pub tlb_eviction: u32,
    /// Per hostile tick: an access counter reports a group that nobody counted.
    pub spurious_notice: u32,
    /// An access goes to a page outside every allocation.
    pub wild_access: u32,
    /// A request of the program makes no sense.
    pub senseless_request: u32,
    /// Copies of one page of the arena always fail.
    pub broken_page: bool,
}

impl Hostility {
    /// A friendly machine: delays, nothing else.
    pub const fn none() -> Hostility {
        Hostility {
            delay_ns_max: 2_000,
            duplicate_completion: 0,
            copy_failure: 0,
            host_failure: 0,
            ring_failure: 0,
            silent_copy: 0,
            untold: 0,
            stalled_ring: 0,
            card_lost: 0,
            card_reset: 0,
            tlb_eviction: 0,
            spurious_notice: 0,
            wild_access: 0,
            senseless_request: 0,
            broken_page: false,
        }
    }

    /// A machine that delays, reorders and repeats, but whose commands succeed.
    pub const fn reordering() -> Hostility {
        Hostility {
            delay_ns_max: 20_000,
            duplicate_completion: 50,
            untold: 150,
            tlb_eviction: 200,
            spurious_notice: 100,
            wild_access: 3,
            senseless_request: 100,
            ..Hostility::none()
        }
    }

    /// A reordering machine that also breaks.
    pub const fn breaking() -> Hostility {
        Hostility {
            copy_failure: 40,
            host_failure: 40,
            ring_failure: 3,
            silent_copy: 10,
            stalled_ring: 10,
            card_lost: 4,
            card_reset: 4,
            broken_page: true,
            ..Hostility::reordering()
        }
    }
}

//! The kinds of frames: numbers, classes, lengths.

use super::{Class, Frame};

/// Kind = number, class, bytes of its fields, whether data comes behind them. The test of
/// `docs/link-protocol.md` compares its table with this one.
macro_rules! kinds {
    ($($kind:ident = $number:literal, $class:ident, $fields:literal, $data:literal;)*) => {
        /// What a frame is.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Kind { $(#[doc = concat!("[`Frame::", stringify!($kind), "`]")] $kind = $number,)* }

        impl Kind {
            /// All of them, by number.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// The kind with a number.
            #[must_use]
            pub const fn decode(number: u16) -> Option<Kind> {
                match number { $($number => Some(Kind::$kind),)* _ => None }
            }

            /// Its class.
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $(Kind::$kind => Class::$class,)* }
            }

            /// Bytes of its fields, data not counted.
            #[must_use]
            pub const fn field_bytes(self) -> usize {
                match self { $(Kind::$kind => $fields,)* }
            }

            /// Whether data comes behind the fields.
            #[must_use]
            pub const fn has_data(self) -> bool {
                match self { $(Kind::$kind => $data,)* }
            }
        }

        impl<D> Frame<D> {
            /// What it is.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Frame::$kind { .. } => Kind::$kind,)* }
            }
        }
    };
}

kinds! {
    RegionWrite = 0x0101, Posted, 12, true;
    MemoryWrite = 0x0102, Posted, 8, true;
    MemoryFill = 0x0103, Posted, 17, false;
    DmaWrite = 0x0104, Posted, 8, true;
    Interrupt = 0x0105, Posted, 8, false;
    IrqControl = 0x0106, Posted, 16, false;
    DmaMap = 0x0107, Posted, 20, false;
    RingEntries = 0x0108, Posted, 8, true;
    RingConsumed = 0x0109, Posted, 8, false;
    Refused = 0x010a, Posted, 22, false;
    Return = 0x010b, Posted, 0, false;
    RingWaits = 0x010c, Posted, 4, false;
    PeerAdmit = 0x010d, Posted, 4, true;
    PeerReach = 0x010e, Posted, 4, true;
    PeerLend = 0x010f, Posted, 24, false;
    PeerEnd = 0x0110, Posted, 12, false;
    RegionRead = 0x0201, Request, 16, false;
    MemoryRead = 0x0202, Request, 12, false;
    DmaRead = 0x0203, Request, 12, false;
    DmaUnmap = 0x0204, Request, 16, false;
    Reset = 0x0205, Request, 0, false;
    Barrier = 0x0206, Request, 0, false;
    Describe = 0x0207, Request, 0, false;
    PeerReady = 0x0208, Request, 4, false;
    PeerFetch = 0x0209, Request, 24, false;
    PeerRead = 0x020a, Request, 12, false;
    MemoryReadBehind = 0x020b, Request, 20, false;
    Data = 0x0301, Reply, 5, true;
    Done = 0x0302, Reply, 0, false;
    Failed = 0x0303, Reply, 4, false;
}

impl Kind {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

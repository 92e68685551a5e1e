//! Arguments of a launch: records in memory.

/// Bytes of an argument's record.
pub const ARG_BYTES: u64 = 32;
/// Arguments of one launch.
pub const ARGS_MAX: u32 = 64;

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArgKind {
    /// A plain value of up to eight bytes.
    Value,
    /// Memory that the kernel may read.
    Read,
    /// Memory that the kernel may read and write, and nobody else meanwhile.
    Write,
    /// Memory that all may touch at the same time, by atomic operations.
    Shared,
}

/// What number a value is, where its caller says so: two of the same size are not the same in bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Number {
    /// A whole number, with a sign or without.
    Integer = 1,
    /// A floating-point number of IEEE 754.
    Float = 2,
}

impl Number {
    /// All of them.
    pub const ALL: [Number; 2] = [Number::Integer, Number::Float];

    /// Its code, in the place of a value's bytes; 0 where it is not said.
    pub const fn code(self) -> u64 {
        self as u64
    }

    /// The number of a code.
    pub fn from_code(code: u64) -> Option<Number> {
        Number::ALL.into_iter().find(|number| number.code() == code)
    }
}

/// One argument: words kind | size of an element << 32, address or value, bytes, 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelArg {
    /// What it is.
    pub kind: ArgKind,
    /// Bytes of one element; of the value itself for a value.
    pub element: u32,
    /// The value's bits, or the address of the first byte.
    pub word: u64,
    /// Length in bytes; of a value 0, or what [`Number`] it is.
    pub bytes: u64,
}

impl KernelArg {
    /// The record.
    pub const fn to_words(self) -> [u64; 4] {
        let kind = match self.kind {
            ArgKind::Value => 0,
            ArgKind::Read => 1,
            ArgKind::Write => 2,
            ArgKind::Shared => 3,
        };
        [kind | (self.element as u64) << 32, self.word, self.bytes, 0]
    }

    /// What number a value is, where that is said.
    pub fn number(&self) -> Option<Number> {
        Number::from_code(self.bytes).filter(|_| self.kind == ArgKind::Value)
    }

    /// The same for a card that is not told what numbers values are.
    pub fn without_number(self) -> KernelArg {
        let bytes = if self.kind == ArgKind::Value { 0 } else { self.bytes };
        KernelArg { bytes, ..self }
    }

    /// The argument of a record; `None` if it makes no sense.
    pub fn from_words(words: [u64; 4]) -> Option<KernelArg> {
        let [head, word, bytes, zero] = words;
        let kind = match head as u32 {
            0 => ArgKind::Value,
            1 => ArgKind::Read,
            2 => ArgKind::Write,
            3 => ArgKind::Shared,
            _ => return None,
        };
        let element = (head >> 32) as u32;
        let sound = match kind {
            ArgKind::Value => {
                (bytes == 0 || Number::from_code(bytes).is_some()) && (1..=8).contains(&element)
            }
            _ => element > 0 && bytes % u64::from(element) == 0,
        };
        let ends = word.checked_add(bytes).is_some();
        (zero == 0 && sound && (ends || kind == ArgKind::Value)).then_some(KernelArg {
            kind,
            element,
            word,
            bytes,
        })
    }
}

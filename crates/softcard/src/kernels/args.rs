//! Arguments of a kernel: records, decoded and checked.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use farside_card::interface::{ARG_BYTES, ARGS_MAX, ArgKind, KernelArg, Number};
use farside_types::PAGE_SIZE;

use crate::error::KernelError;
use crate::job::{Granted, Lent};
use crate::span::{AtomicSpan, ReadSpan, Word, WriteSpan};

/// What a kernel was called with. The getters give spans and values of the type that the kernel
/// wants, or say which argument is something else.
pub struct KernelArgs {
    kernel: Arc<str>,
    args: Box<[KernelArg]>,
}

impl fmt::Debug for KernelArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.args.iter().map(|arg| DisplayArg(*arg))).finish()
    }
}

/// An argument, in words.
struct DisplayArg(KernelArg);

impl fmt::Display for DisplayArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelArg { kind, element, word, bytes } = self.0;
        match kind {
            ArgKind::Value => f.write_str(&value(element, self.0.number())),
            kind => {
                let count = bytes / u64::from(element.max(1));
                write!(f, "{} {count} elements of {element} bytes at {word:#x}", lent(kind))
            }
        }
    }
}

impl fmt::Debug for DisplayArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A value, in words.
fn value(element: u32, number: Option<Number>) -> String {
    let number = match number {
        None => "",
        Some(Number::Integer) => ", an integer",
        Some(Number::Float) => ", a float",
    };
    format!("a value of {element} bytes{number}")
}

/// What number a type is; `None` for what is none, such as an array of bytes.
pub fn number_of<T: 'static>() -> Option<Number> {
    let id = TypeId::of::<T>();
    let is_integer = [
        TypeId::of::<u8>(),
        TypeId::of::<i8>(),
        TypeId::of::<u16>(),
        TypeId::of::<i16>(),
        TypeId::of::<u32>(),
        TypeId::of::<i32>(),
        TypeId::of::<u64>(),
        TypeId::of::<i64>(),
        TypeId::of::<usize>(),
        TypeId::of::<isize>(),
    ]
    .contains(&id);
    let is_float = [TypeId::of::<f32>(), TypeId::of::<f64>()].contains(&id);
    match (is_integer, is_float) {
        (true, _) => Some(Number::Integer),
        (_, true) => Some(Number::Float),
        _ => None,
    }
}

/// How memory was lent, as a sentence begins.
fn lent(kind: ArgKind) -> &'static str {
    match kind {
        ArgKind::Value => "a value:",
        ArgKind::Read => "memory to read:",
        ArgKind::Write => "memory to write:",
        ArgKind::Shared => "shared words:",
    }
}

impl KernelArgs {
    /// The arguments of a call of `kernel`.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] if there are more than [`ARGS_MAX`], or one makes no sense.
    ///
    /// # Safety
    /// Kernels make slices of what the records name, in a job that was granted these bytes. So
    /// memory of a [`ArgKind::Read`] is written by nobody, and memory of a [`ArgKind::Write`] is
    /// used by nobody else, until the kernel has ended; memory of a [`ArgKind::Shared`] is used
    /// only by atomic operations. Addresses that the job was not granted do no harm.
    pub unsafe fn new(kernel: Arc<str>, args: Vec<KernelArg>) -> Result<KernelArgs, KernelError> {
        if args.len() > ARGS_MAX as usize {
            return Err(too_many(kernel, args.len()));
        }
        for (index, arg) in args.iter().enumerate() {
            if KernelArg::from_words(arg.to_words()).is_none() {
                return Err(senseless(kernel, index, arg.to_words()));
            }
        }
        Ok(KernelArgs { kernel, args: args.into() })
    }

    /// The arguments of records in memory, of [`ARG_BYTES`] bytes each, little endian.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] if these are no records, more than [`ARGS_MAX`], or one makes no
    /// sense.
    ///
    /// # Safety
    /// As [`KernelArgs::new`].
    pub unsafe fn from_bytes(kernel: Arc<str>, bytes: &[u8]) -> Result<KernelArgs, KernelError> {
        let records = bytes.chunks_exact(ARG_BYTES as usize);
        if records.len() > ARGS_MAX as usize {
            return Err(too_many(kernel, records.len()));
        }
        if !records.remainder().is_empty() {
            let why =
                format!("its arguments have {} bytes; a record has {ARG_BYTES} bytes", bytes.len());
            return Err(KernelError::BadRequest { kernel, why });
        }
        let mut args = Vec::with_capacity(records.len());
        for (index, record) in records.enumerate() {
            let words = words_of(record);
            match KernelArg::from_words(words) {
                Some(arg) => args.push(arg),
                None => return Err(senseless(kernel, index, words)),
            }
        }
        Ok(KernelArgs { kernel, args: args.into() })
    }

    /// The kernel's name.
    pub fn kernel(&self) -> &Arc<str> {
        &self.kernel
    }

    /// The records.
    pub fn records(&self) -> &[KernelArg] {
        &self.args
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// What a job with these arguments may touch: all that they name. No entry for what is empty.
    pub fn grants(&self) -> Vec<Granted> {
        self.args.iter().filter_map(granted).collect()
    }

    /// Requires that there are `count` arguments.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`].
    pub fn takes(&self, count: usize) -> Result<(), KernelError> {
        if self.len() == count {
            return Ok(());
        }
        let s = if count == 1 { "" } else { "s" };
        Err(self.bad(format!("it takes {count} argument{s} and was given {}", self.len())))
    }

    /// What argument `index` is.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] if there is no such argument.
    pub fn kind(&self, index: usize) -> Result<ArgKind, KernelError> {
        Ok(self.record(index)?.kind)
    }

    /// Argument `index`, memory to be read.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] if it is something else, or elements of another size.
    pub fn read<T: Pod>(&self, index: usize) -> Result<ReadSpan<T>, KernelError> {
        let (start, len) = self.memory::<T>(index, ArgKind::Read)?;
        Ok(ReadSpan::raw(start, len))
    }

    /// Argument `index`, memory to be read and written.
    ///
    /// # Errors
    /// As [`KernelArgs::read`].
    pub fn write<T: Pod>(&self, index: usize) -> Result<WriteSpan<T>, KernelError> {
        let (start, len) = self.memory::<T>(index, ArgKind::Write)?;
        Ok(WriteSpan::raw(start, len))
    }

    /// Argument `index`, words that all may touch at the same time.
    ///
    /// # Errors
    /// As [`KernelArgs::read`].
    pub fn shared<W: Word>(&self, index: usize) -> Result<AtomicSpan<W>, KernelError> {
        let (start, len) = self.memory::<W>(index, ArgKind::Shared)?;
        Ok(AtomicSpan::raw(start, len))
    }

    /// Argument `index`, a plain value of at most eight bytes.
    ///
    /// # Errors
    /// As [`KernelArgs::read`], and if it is said to be an integer where `T` is a float, or the other way round.
    pub fn value<T: Pod>(&self, index: usize) -> Result<T, KernelError> {
        const { assert!(size_of::<T>() <= 8, "a value has at most eight bytes") };
        let arg = self.record(index)?;
        let wanted = number_of::<T>();
        let is_another = arg.number().is_some_and(|given| wanted.is_some_and(|it| it != given));
        if arg.kind != ArgKind::Value || arg.element as usize != size_of::<T>() || is_another {
            return Err(self.wrong(index, arg, &value(size_of::<T>() as u32, wanted)));
        }
        Ok(bytemuck::pod_read_unaligned(&arg.word.to_le_bytes()[..size_of::<T>()]))
    }

    /// First byte and number of elements of memory that is lent as `kind`.
    fn memory<T>(&self, index: usize, kind: ArgKind) -> Result<(u64, usize), KernelError> {
        const {
            assert!(
                size_of::<T>() > 0 && PAGE_SIZE % size_of::<T>() == 0,
                "a value in shared memory has a size that divides 4096"
            );
        }
        let arg = self.record(index)?;
        let element = size_of::<T>() as u64;
        if arg.kind != kind || u64::from(arg.element) != element {
            let wanted = format!("{} elements of {element} bytes", lent(kind));
            return Err(self.wrong(index, arg, &wanted));
        }
        // An element that is aligned to its size lies in one page, and aligned for its type.
        if arg.word % element != 0 {
            let wanted = format!("an address that is a multiple of {element}");
            return Err(self.wrong(index, arg, &wanted));
        }
        let len = usize::try_from(arg.bytes / element)
            .map_err(|_| self.wrong(index, arg, "as many as there are addresses for"))?;
        Ok((arg.word, len))
    }

    fn record(&self, index: usize) -> Result<KernelArg, KernelError> {
        self.args.get(index).copied().ok_or_else(|| {
            let given = self.len();
            self.bad(format!("it wants argument {index} (from 0 on) and was given {given}"))
        })
    }

    #[cold]
    fn wrong(&self, index: usize, given: KernelArg, wanted: &str) -> KernelError {
        let given = DisplayArg(given);
        self.bad(format!("argument {index} (from 0 on) is {given}; wanted is {wanted}"))
    }

    /// A call that this kernel cannot serve: `why` says what is wrong with its arguments.
    #[cold]
    pub fn bad(&self, why: impl Into<String>) -> KernelError {
        KernelError::BadRequest { kernel: Arc::clone(&self.kernel), why: why.into() }
    }
}

fn words_of(record: &[u8]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(record.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    words
}

fn too_many(kernel: Arc<str>, given: usize) -> KernelError {
    let why = format!("it was given {given} arguments; a call has at most {ARGS_MAX}");
    KernelError::BadRequest { kernel, why }
}

fn senseless(kernel: Arc<str>, index: usize, words: [u64; 4]) -> KernelError {
    let why = format!("argument {index} (from 0 on) is no record of an argument: {words:x?}");
    KernelError::BadRequest { kernel, why }
}

fn granted(arg: &KernelArg) -> Option<Granted> {
    let lent = match arg.kind {
        ArgKind::Value => return None,
        ArgKind::Read => Lent::Read,
        ArgKind::Write => Lent::Write,
        // A word of another size is none; nothing can be done with such memory.
        ArgKind::Shared => Lent::Shared { word: u8::try_from(arg.element).unwrap_or(u8::MAX) },
    };
    // SAFETY: whoever made the arguments has promised that they are lent as their kinds say.
    (arg.bytes > 0).then(|| unsafe { Granted::new(arg.word, arg.bytes, lent) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64};

    use farside_types::Access;
    use proptest::prelude::*;

    use super::*;
    use crate::job::Use;

    fn decode(args: Vec<KernelArg>) -> Result<KernelArgs, KernelError> {
        // SAFETY: no job is granted what these name, so nothing is made of it.
        unsafe { KernelArgs::new("k".into(), args) }
    }

    fn decode_bytes(bytes: &[u8]) -> Result<KernelArgs, KernelError> {
        // SAFETY: as above.
        unsafe { KernelArgs::from_bytes("k".into(), bytes) }
    }

    fn bytes_of(args: &[KernelArg]) -> Vec<u8> {
        args.iter().flat_map(|arg| arg.to_words()).flat_map(u64::to_le_bytes).collect()
    }

    fn arg(kind: ArgKind, element: u32, word: u64, bytes: u64) -> KernelArg {
        KernelArg { kind, element, word, bytes }
    }

    /// What a getter says against arguments.
    fn why<T>(outcome: Result<T, KernelError>) -> String {
        match outcome {
            Err(KernelError::BadRequest { kernel, why }) => {
                assert_eq!(&*kernel, "k");
                why
            }
            Err(other) => panic!("another error: {other}"),
            Ok(_) => panic!("it was not refused"),
        }
    }

    #[test]
    fn getters_give_what_was_lent_and_nothing_else() {
        let args = decode(vec![
            arg(ArgKind::Value, 4, f32::to_bits(2.5).into(), 0),
            arg(ArgKind::Read, 4, 0x1000, 40),
            arg(ArgKind::Write, 8, 0x2008, 16),
            arg(ArgKind::Shared, 4, 0x3000, 4),
            arg(ArgKind::Read, 8, 0x4004, 8),
        ])
        .unwrap();
        assert_eq!(args.value::<f32>(0), Ok(2.5));
        let read = args.read::<u32>(1).unwrap();
        assert_eq!((read.start(), read.len()), (0x1000, 10));
        let write = args.write::<u64>(2).unwrap();
        assert_eq!((write.start(), write.len()), (0x2008, 2));
        let shared = args.shared::<AtomicU32>(3).unwrap();
        assert_eq!((shared.start(), shared.len()), (0x3000, 1));

        let told = why(args.read::<u64>(1));
        assert_eq!(
            told,
            "argument 1 (from 0 on) is memory to read: 10 elements of 4 bytes at 0x1000; wanted is \
             memory to read: elements of 8 bytes"
        );
        assert!(why(args.write::<u32>(1)).contains("wanted is memory to write"));
        assert!(why(args.shared::<AtomicU64>(2)).contains("wanted is shared words"));
        assert!(
            why(args.value::<u64>(0)).contains("is a value of 4 bytes; wanted is a value of 8")
        );
        assert!(why(args.value::<u32>(1)).contains("wanted is a value of 4 bytes"));
        assert!(why(args.read::<u8>(0)).contains("argument 0"));
        assert!(why(args.read::<u64>(4)).contains("a multiple of 8"));
        assert!(why(args.kind(5)).contains("wants argument 5 (from 0 on) and was given 5"));
        assert_eq!(args.takes(5), Ok(()));
        assert!(why(args.takes(2)).contains("takes 2 arguments and was given 5"));
    }

    #[test]
    fn numbers_of_another_kind_are_refused_and_what_says_nothing_is_taken() {
        let number = |number: Number, element| arg(ArgKind::Value, element, 3, number.code());
        let args = decode(vec![
            number(Number::Integer, 4),
            number(Number::Float, 4),
            arg(ArgKind::Value, 4, 3, 0),
            number(Number::Float, 8),
        ])
        .unwrap();
        assert_eq!(
            why(args.value::<f32>(0)),
            "argument 0 (from 0 on) is a value of 4 bytes, an integer; wanted is a value of 4 bytes, a float"
        );
        assert!(
            why(args.value::<i32>(1)).contains("a float; wanted is a value of 4 bytes, an integer")
        );
        assert!(why(args.value::<u64>(3)).contains("of 8 bytes, a float; wanted"));
        // Integers with a sign and without are the same bits, and what is no number is bytes.
        assert_eq!((args.value::<u32>(0), args.value::<i32>(0)), (Ok(3), Ok(3)));
        assert_eq!(
            (args.value::<[u8; 4]>(0), args.value::<[u8; 4]>(1)),
            (Ok([3, 0, 0, 0]), Ok([3, 0, 0, 0]))
        );
        assert_eq!((args.value::<f32>(2), args.value::<u32>(2)), (Ok(f32::from_bits(3)), Ok(3)));
    }

    #[test]
    fn records_that_make_no_sense_are_refused_by_number() {
        let good = arg(ArgKind::Value, 8, 1, 0);
        for bad in [
            arg(ArgKind::Value, 9, 1, 0),
            arg(ArgKind::Value, 0, 1, 0),
            arg(ArgKind::Value, 8, 1, 3),
            arg(ArgKind::Read, 0, 0x1000, 8),
            arg(ArgKind::Write, 8, 0x1000, 7),
            arg(ArgKind::Shared, 8, u64::MAX - 7, 16),
        ] {
            assert!(why(decode(vec![good, bad])).contains("argument 1"), "{bad:?}");
            assert!(why(decode_bytes(&bytes_of(&[good, bad]))).contains("argument 1"), "{bad:?}");
        }
        let many = vec![good; ARGS_MAX as usize];
        assert_eq!(decode(many.clone()).unwrap().len(), ARGS_MAX as usize);
        let too_many = [many, vec![good]].concat();
        assert!(why(decode(too_many.clone())).contains("given 65 arguments"));
        assert!(why(decode_bytes(&bytes_of(&too_many))).contains("given 65 arguments"));
        assert!(why(decode_bytes(&[0; 33])).contains("33 bytes"));
        assert!(decode_bytes(&[]).unwrap().is_empty());
    }

    /// Any records, the sound ones more often than chance makes them.
    fn records() -> impl Strategy<Value = Vec<KernelArg>> {
        let kind = prop_oneof![
            Just(ArgKind::Value),
            Just(ArgKind::Read),
            Just(ArgKind::Write),
            Just(ArgKind::Shared)
        ];
        let element = prop_oneof![0u32..=16, any::<u32>()];
        let word = prop_oneof![any::<u64>(), (0u64..64).prop_map(|n| u64::MAX - n), Just(0)];
        let bytes = prop_oneof![Just(0u64), (0u64..64).prop_map(|n| n * 8), any::<u64>()];
        let record = (kind, element, word, bytes)
            .prop_map(|(kind, element, word, bytes)| arg(kind, element, word, bytes));
        proptest::collection::vec(record, 0..8)
    }

    /// Everything that a kernel may ask of argument `index`.
    fn ask(args: &KernelArgs, index: usize) {
        let grants = args.grants();
        let granted = |start: u64, bytes: u64, use_| {
            let allows = |grant: &&Granted| {
                grant.covers(start, bytes) && grant.allows(start, bytes, use_).is_some()
            };
            bytes == 0 || grants.iter().any(|grant| allows(&grant))
        };
        if let Ok(span) = args.read::<u8>(index) {
            assert!(granted(span.start(), span.bytes(), Use::Slice(Access::Read)));
        }
        if let Ok(span) = args.read::<[u64; 2]>(index) {
            assert_eq!(span.start() % 16, 0);
            assert!(granted(span.start(), span.bytes(), Use::Slice(Access::Read)));
        }
        if let Ok(span) = args.write::<u64>(index) {
            assert_eq!(span.start() % 8, 0);
            assert!(granted(span.start(), span.bytes(), Use::Slice(Access::Write)));
        }
        if let Ok(span) = args.shared::<AtomicU64>(index) {
            assert_eq!(span.start() % 8, 0);
            assert!(span.is_empty() || granted(span.start(), 8, Use::Atomic));
        }
        if let Ok(value) = args.value::<u32>(index) {
            assert_eq!(value, args.records()[index].word as u32);
        }
        let _ = (args.value::<u8>(index), args.kind(index), args.takes(index));
    }

    proptest! {
        #[test]
        fn hostile_records_are_refused_or_stay_within_their_grants(given in records()) {
            let sound = given.iter().all(|arg| KernelArg::from_words(arg.to_words()).is_some());
            match decode(given.clone()) {
                Ok(args) => {
                    prop_assert!(sound);
                    (0..given.len() + 2).for_each(|index| ask(&args, index));
                    let again = decode_bytes(&bytes_of(&given)).unwrap();
                    prop_assert_eq!(again.records(), &*given);
                }
                Err(error) => {
                    prop_assert!(!sound, "{}", error);
                    prop_assert!(decode_bytes(&bytes_of(&given)).is_err());
                }
            }
        }

        #[test]
        fn hostile_bytes_are_refused_or_are_records(
            given in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(args) = decode_bytes(&given) {
                (0..args.len() + 2).for_each(|index| ask(&args, index));
                prop_assert_eq!(bytes_of(args.records()), given);
            }
        }

        #[test]
        fn values_come_as_they_were_given(value in any::<u64>(), small in any::<i16>()) {
            let args = decode(vec![
                arg(ArgKind::Value, 8, value, 0),
                arg(ArgKind::Value, 2, u64::from(small as u16), 0),
            ]).unwrap();
            prop_assert_eq!(args.value::<u64>(0).unwrap(), value);
            prop_assert_eq!(args.value::<i16>(1).unwrap(), small);
        }
    }
}

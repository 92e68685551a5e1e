//! Calls of kernels by name: what they take, as records that can travel to a card.

use bytemuck::Pod;
use farside_softcard::Word;
use farside_softcard::kernels::{ArgKind, KernelArg, Number, number_of};

use crate::{Read, Shared, Write};

/// Gives a kernel a plain value of at most eight bytes. A kernel that wants a float and is given an integer of the same
/// size, or the other way round, fails.
#[derive(Clone, Copy, Debug)]
pub struct Value<T>(pub T);

mod sealed {
    pub trait Sealed {}
}

/// What a call of a named kernel takes: one of [`Value`], [`Read`], [`Write`], [`Shared`], a
/// vector of one of them, a tuple of up to eight, or `()`. The kernel's arguments are those of a
/// tuple or a vector, in order.
///
/// Sealed: a kernel makes slices of what the records name, so they must come from what is
/// borrowed.
pub trait CallArgs: sealed::Sealed {
    /// Appends the records.
    fn encode(&self, records: &mut Vec<KernelArg>);
}

fn memory(kind: ArgKind, start: u64, bytes: usize, element: usize) -> KernelArg {
    // A size that no record holds is refused by its reader, as one that no kernel takes.
    let element = u32::try_from(element).unwrap_or(u32::MAX);
    KernelArg { kind, element, word: start, bytes: bytes as u64 }
}

impl<T> sealed::Sealed for Value<T> {}

impl<T: Pod> CallArgs for Value<T> {
    fn encode(&self, records: &mut Vec<KernelArg>) {
        const {
            let bytes = size_of::<T>();
            assert!(0 < bytes && bytes <= 8, "a value has one to eight bytes");
        }
        let mut word = [0; 8];
        word[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&self.0));
        records.push(KernelArg {
            kind: ArgKind::Value,
            element: size_of::<T>() as u32,
            word: u64::from_le_bytes(word),
            bytes: number_of::<T>().map_or(0, Number::code),
        });
    }
}

impl<T> sealed::Sealed for Read<'_, T> {}

impl<T: Pod> CallArgs for Read<'_, T> {
    fn encode(&self, records: &mut Vec<KernelArg>) {
        let start = self.0.as_ptr() as u64;
        records.push(memory(ArgKind::Read, start, size_of_val(self.0), size_of::<T>()));
    }
}

impl<T> sealed::Sealed for Write<'_, T> {}

impl<T: Pod> CallArgs for Write<'_, T> {
    fn encode(&self, records: &mut Vec<KernelArg>) {
        let start = self.0.as_ptr() as u64;
        records.push(memory(ArgKind::Write, start, size_of_val(self.0), size_of::<T>()));
    }
}

impl<W> sealed::Sealed for Shared<'_, W> {}

impl<W: Word> CallArgs for Shared<'_, W> {
    fn encode(&self, records: &mut Vec<KernelArg>) {
        let start = self.0.as_ptr() as u64;
        records.push(memory(ArgKind::Shared, start, size_of_val(self.0), size_of::<W>()));
    }
}

impl sealed::Sealed for () {}

impl CallArgs for () {
    fn encode(&self, _records: &mut Vec<KernelArg>) {}
}

impl<A: CallArgs> sealed::Sealed for Vec<A> {}

impl<A: CallArgs> CallArgs for Vec<A> {
    fn encode(&self, records: &mut Vec<KernelArg>) {
        self.iter().for_each(|args| args.encode(records));
    }
}

macro_rules! tuples {
    ($(($($name:ident),+)),+) => {$(
        impl<$($name: CallArgs),+> sealed::Sealed for ($($name,)+) {}

        impl<$($name: CallArgs),+> CallArgs for ($($name,)+) {
            #[allow(non_snake_case)]
            fn encode(&self, records: &mut Vec<KernelArg>) {
                let ($($name,)+) = self;
                $($name.encode(records);)+
            }
        }
    )+};
}

for_tuples!(tuples);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn records(args: impl CallArgs) -> Vec<KernelArg> {
        let mut records = Vec::new();
        args.encode(&mut records);
        records
    }

    #[test]
    fn each_argument_becomes_a_sound_record_in_order() {
        let (read, mut write, shared) = ([1u16; 5], [2u64; 3], [AtomicU32::new(0), 0.into()]);
        let start = [read.as_ptr() as u64, write.as_ptr() as u64, shared.as_ptr() as u64];
        let of = |kind, element, word, bytes| KernelArg { kind, element, word, bytes };
        let wanted = [
            of(ArgKind::Value, 4, 0x4000_0000, 2),
            of(ArgKind::Read, 2, start[0], 10),
            of(ArgKind::Write, 8, start[1], 24),
            of(ArgKind::Shared, 4, start[2], 8),
        ];
        let given =
            records((Value(2.0f32), Read(&read), (Write(&mut write), vec![Shared(&shared)])));
        assert_eq!(given, wanted);
        for record in given {
            assert_eq!(KernelArg::from_words(record.to_words()), Some(record));
        }
        assert_eq!(records(()), []);
    }

    #[test]
    fn values_are_little_endian_and_the_rest_is_zero() {
        let word = |args: Vec<KernelArg>| (args[0].element, args[0].word);
        assert_eq!(word(records(Value(-1i8))), (1, 0xff));
        assert_eq!(word(records(Value([1u8, 2, 3]))), (3, 0x03_02_01));
        assert_eq!(word(records(Value(u64::MAX - 1))), (8, u64::MAX - 1));
    }
}

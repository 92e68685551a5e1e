//! Kernels in C that choose among the memories of their card's own.

use farside::{CardBuffer, CardColumn, Made, MadeColumn, MemoryKind, Write};

use super::*;

const DDR: u64 = 8 << 20;
const HBM: u64 = 1 << 20;
const NO_MEMORY: u64 = 2;
const NO_OWN_MEMORY: u64 = 4;
const NO_SUCH_MEMORY: u64 = 5;
const LAZY: u32 = 0;
const EAGER: u32 = 1;
const READ_ONLY: u32 = 2;

fn space_of(memories: &[(MemoryKind, u64)]) -> Space {
    let folder = Folder::new();
    let library = folder.file("memories.so");
    compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/memories.c"), &library);
    let builder = Space::builder().cards(2).address_space(64 << 20);
    let builder = builder.card_window_memories(memories.to_vec());
    // SAFETY: the source keeps the header's rules, or breaks those that the runtime checks.
    unsafe { builder.kernel_library(&library) }.build().unwrap()
}

fn space() -> Space {
    space_of(&[(MemoryKind::Ddr, DDR), (MemoryKind::Hbm, HBM)])
}

fn free(space: &Space) -> Vec<u64> {
    space.own_memories(CardId(1)).unwrap().iter().map(|memory| memory.bytes_free).collect()
}

#[test]
fn a_kernel_in_c_sees_the_memories_of_its_card() {
    let space = space();
    let mut told = space.alloc::<u64>(6).unwrap();
    assert_eq!(call(&space, "m.list", Write(&mut told)).unwrap(), 2);
    assert_eq!(told[..], [1, DDR, DDR, 2, HBM, HBM]);
    let none = space_of(&[]);
    let mut told = none.alloc::<u64>(6).unwrap();
    let error = call(&none, "m.list", Write(&mut told)).unwrap_err().to_string();
    assert!(error.contains("gives no memory of its own"), "{error}");
}

#[test]
fn a_kernel_in_c_chooses_a_memory_and_rights_and_what_is_lacking_is_a_status() {
    let space = space();
    let attempt = |space: &Space, memory: u32, bytes: u64, options: u32| {
        call(space, "m.try_alloc", (Value(memory), Value(bytes), Value(options)))
    };
    for (memory, bytes) in [(0, DDR), (1, HBM)] {
        assert_eq!(attempt(&space, memory, bytes, EAGER).unwrap(), 0);
        assert_eq!(attempt(&space, memory, bytes + 1, EAGER).unwrap(), NO_MEMORY);
        assert_eq!(attempt(&space, memory, 8, LAZY).unwrap(), 0);
        for options in [LAZY | READ_ONLY, EAGER | READ_ONLY] {
            let error = attempt(&space, memory, 8, options).unwrap_err().to_string();
            assert!(error.contains("read"), "{error}");
        }
        assert_eq!(free(&space), [DDR, HBM]);
    }
    for memory in [2, 15, 16, 256, u32::MAX] {
        assert_eq!(attempt(&space, memory, 8, LAZY).unwrap(), NO_SUCH_MEMORY);
    }
    assert_eq!(attempt(&space_of(&[]), 0, 8, LAZY).unwrap(), NO_OWN_MEMORY);
    for (which, wanted) in [
        (0u64, "NULL"),
        (1, "FARSIDE_LAZY or FARSIDE_EAGER, and FARSIDE_READ_ONLY with either, not 4"),
        (2, "at least one byte"),
        (3, "NULL"),
    ] {
        let told = call(&space, "m.misuse", Value(which)).unwrap_err().to_string();
        assert!(told.contains(wanted), "{which}: {told}");
    }
    assert_eq!(free(&space), [DDR, HBM]);
}

#[test]
fn vectors_and_columns_that_a_kernel_in_c_builds_stay_in_their_memory() {
    let space = space();
    for memory in [0u64, 1] {
        let mut made = space.alloc::<Made>(1).unwrap();
        let mut words = space.alloc::<u64>(14).unwrap();
        let rows = 5000u64;
        let args = (Value(memory), Value(rows), Write(&mut made), Write(&mut words));
        call(&space, "m.build", args).unwrap();
        let columns: &[MadeColumn] = bytemuck::cast_slice(&words);
        let all: CardBuffer<u64> = space.take_over(CardId(1), made[0]).unwrap();
        let numbers: CardColumn<u64> = space.take_over_column(CardId(1), columns[0]).unwrap();
        let texts: CardColumn<str> = space.take_over_column(CardId(1), columns[1]).unwrap();
        assert!((0..rows).eq(all.host().unwrap().iter().copied()));
        assert_eq!(numbers.values().unwrap()[4999], 4999);
        // 40000 bytes twice, 15000 of texts and 20004 of offsets, 625 of validity twice.
        let mut left = [DDR, HBM];
        left[memory as usize] -= (10 + 10 + 4 + 5 + 1 + 1) * 4096;
        assert_eq!(free(&space), left, "{memory}");
        assert_eq!(texts.into_arrow("").unwrap().0.null_count(), 2500);
        drop((all, numbers));
        assert_eq!(free(&space), [DDR, HBM]);
    }
}

#[test]
fn vectors_and_columns_of_a_kernel_in_c_get_memory_at_once_where_it_says_so() {
    let space = space();
    for memory in [0u64, 1] {
        let mut taken = space.alloc::<u64>(3).unwrap();
        call(&space, "m.build_eagerly", (Value(memory), Write(&mut taken))).unwrap();
        // Texts are bytes, and where they begin.
        assert_eq!(taken[..], [64 << 10, 64 << 10, 128 << 10], "{memory}");
        assert_eq!(free(&space), [DDR, HBM]);
    }
}

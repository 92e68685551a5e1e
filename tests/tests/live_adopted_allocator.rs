//! A random program that allocates, reallocates, frees, maps, moves, unmaps, protects, writes and computes, with
//! Farside and without: every byte is the same.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::time::Duration;

use farside::{Adopted, Error, KernelContext, KernelError, Space, Write, WriteSpan, WriteView};
use harness::live::within;
use harness::{Prng, seeds};

const LIMIT: Duration = Duration::from_secs(120);
const PAGE: usize = 4096;
/// Pieces of memory at a time.
const SLOTS: usize = 6;
const STEPS: usize = 150;

/// How a piece was had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Heap,
    Mapped,
}

/// A piece of memory, and the space's part in it.
struct Piece {
    kind: Kind,
    start: *mut u8,
    bytes: usize,
    writable: bool,
    shared: Option<Adopted<'static, u8>>,
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 16).unwrap()
}

/// Private anonymous memory.
fn map(bytes: usize) -> *mut u8 {
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel likes touches nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, kind, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

impl Piece {
    fn new(kind: Kind, bytes: usize) -> Piece {
        let start = match kind {
            // SAFETY: there is at least one byte.
            Kind::Heap => unsafe { alloc(layout(bytes)) },
            Kind::Mapped => map(bytes),
        };
        assert!(!start.is_null());
        let piece = Piece { kind, start, bytes, writable: true, shared: None };
        if kind == Kind::Heap {
            piece.all().fill(0);
        }
        piece
    }

    /// All of it; nothing else touches it while this is used.
    fn all(&self) -> &'static mut [u8] {
        // SAFETY: the memory is this piece's, of one thread, and lives longer than any use of this.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// Adopted, in the run with Farside; what cannot be stays as it is.
    fn share(&mut self, space: Option<&Space>) {
        let Some(space) = space.filter(|_| self.shared.is_none() && self.writable) else { return };
        self.shared = Some(space.adopt(self.all(), "piece").unwrap());
    }

    /// Given back in order.
    fn give_back(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.release().unwrap();
        }
    }

    /// Given back after the program has moved or unmapped some of it.
    fn is_gone(&mut self) {
        if let Some(shared) = self.shared.take() {
            // What is there cannot be shown any more.
            let gone = Error::from(shared.release().map(|_| "given back").unwrap_err());
            assert!(gone.to_string().contains("moved or unmapped"), "{gone}");
        }
    }

    fn free(mut self, in_order: bool) {
        if !self.writable {
            self.protect(true);
        }
        match self.kind {
            Kind::Heap => {
                self.give_back();
                // SAFETY: allocated with the same layout, and not used any more.
                unsafe { dealloc(self.start, layout(self.bytes)) };
            }
            Kind::Mapped => {
                if in_order {
                    self.give_back();
                }
                // SAFETY: the mapping is this piece's, and not used any more.
                assert_eq!(unsafe { libc::munmap(self.start.cast(), self.bytes) }, 0);
                self.is_gone();
            }
        }
    }

    fn resize(&mut self, bytes: usize) {
        let old = self.bytes;
        match self.kind {
            Kind::Heap => {
                self.give_back();
                // SAFETY: allocated with the same layout.
                self.start = unsafe { realloc(self.start, layout(old), bytes) };
                assert!(!self.start.is_null());
                self.bytes = bytes;
                if bytes > old {
                    self.all()[old..].fill(0);
                }
            }
            Kind::Mapped => {
                let moves = libc::MREMAP_MAYMOVE;
                // SAFETY: the mapping is this piece's, which is used at its new place.
                let now = unsafe { libc::mremap(self.start.cast(), old, bytes, moves) };
                assert_ne!(now, libc::MAP_FAILED);
                if now.cast() == self.start && bytes >= old {
                    self.give_back();
                } else {
                    self.is_gone();
                }
                (self.start, self.bytes) = (now.cast(), bytes);
            }
        }
    }

    fn protect(&mut self, writable: bool) {
        let rights = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: the mapping is this piece's, which does not write it meanwhile.
        assert_eq!(unsafe { libc::mprotect(self.start.cast(), self.bytes, rights) }, 0);
        self.writable = writable;
    }
}

fn change(bytes: &mut [u8], by: u8) {
    bytes.iter_mut().for_each(|byte| *byte = byte.rotate_left(3) ^ by);
}

fn kernel(by: u8) -> impl Fn(&mut KernelContext, WriteSpan<u8>) -> Result<(), KernelError> {
    move |k, mut bytes| {
        for first in (0..bytes.len()).step_by(20 * PAGE) {
            let part = bytes.slice(first..bytes.len().min(first + 20 * PAGE));
            k.with(part, |mut view: WriteView<u8>| {
                view.iter_mut().for_each(|byte| *byte = byte.rotate_left(3) ^ by);
            })?;
        }
        Ok(())
    }
}

/// The program; gives what it has read, in order.
fn program(seed: u64, space: Option<&Space>) -> Vec<u64> {
    let mut rng = Prng::new(seed);
    let mut pieces: Vec<Option<Piece>> = (0..SLOTS).map(|_| None).collect();
    let mut read = Vec::new();
    for _ in 0..STEPS {
        let slot = rng.below(SLOTS as u64) as usize;
        let (what, size, a, b, by) =
            (rng.below(12), rng.between(1, 90_000) as usize, rng.bits(), rng.bits(), rng.bits());
        let Some(piece) = &mut pieces[slot] else {
            let kind = if what % 2 == 0 { Kind::Heap } else { Kind::Mapped };
            let bytes = if kind == Kind::Mapped { size.next_multiple_of(PAGE) } else { size };
            let mut piece = Piece::new(kind, bytes);
            if by % 5 > 0 {
                piece.share(space);
            }
            pieces[slot] = Some(piece);
            continue;
        };
        let first = (a % piece.bytes as u64) as usize;
        let count = 1 + (b % (piece.bytes - first) as u64) as usize;
        let part = first..first + count;
        match what {
            0 => pieces[slot].take().expect("it is there").free(by % 2 == 0),
            1 => {
                if piece.kind == Kind::Mapped && !piece.writable {
                    piece.protect(true);
                }
                let bytes =
                    if piece.kind == Kind::Mapped { size.next_multiple_of(PAGE) } else { size };
                piece.resize(bytes);
            }
            2 if piece.kind == Kind::Mapped => {
                let to = !piece.writable;
                piece.protect(to);
            }
            3 if piece.kind == Kind::Mapped => {
                let pages = first / PAGE..(first + count) / PAGE;
                if !pages.is_empty() {
                    let start = piece.start.wrapping_add(pages.start * PAGE);
                    // SAFETY: the pages are this piece's, which wants them empty.
                    let done = unsafe {
                        libc::madvise(start.cast(), pages.len() * PAGE, libc::MADV_DONTNEED)
                    };
                    assert_eq!(done, 0);
                }
            }
            4 => match &piece.shared {
                Some(_) => piece.give_back(),
                None => piece.share(space),
            },
            5 => {
                if let (Some(space), Some(shared)) = (space, &piece.shared) {
                    let card = space.card((by % 2) as usize).unwrap();
                    // What may only be read stays.
                    let moved = space.migrate(&shared[part], card);
                    assert!(moved.is_ok() || !piece.writable, "{moved:?}");
                }
            }
            6 | 7 if piece.writable => change(&mut piece.all()[part], by as u8),
            8 | 9 if piece.writable => match (space, &mut piece.shared) {
                (Some(space), Some(shared)) => {
                    let card = space.card((by >> 8) as usize % 2).unwrap();
                    let part = Write(&mut shared[part]);
                    space.kernel("change").on(card).run(part, kernel(by as u8)).unwrap();
                }
                _ => change(&mut piece.all()[part], by as u8),
            },
            _ => {
                let sum = piece.all()[part]
                    .iter()
                    .fold(7u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
                read.push(sum);
            }
        }
        if let Some(space) = space.filter(|_| by % 16 == 0) {
            space.check().unwrap();
        }
    }
    for piece in pieces.into_iter().flatten() {
        let sum = |sum: u64, &byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        read.push(piece.all().iter().fold(7, sum));
        piece.free(true);
    }
    read
}

#[test]
fn every_byte_is_the_same_with_farside_and_without() {
    within(LIMIT, "allocator", || {
        for seed in seeds(0..60) {
            println!("seed {seed}");
            let scheme = ["farside", "on-touch", "duplication", "first-touch"][seed as usize % 4];
            let space = Space::builder()
                .cards(2)
                .card_memory(1 << 20)
                .address_space(16 << 20)
                .placement(scheme)
                .build()
                .unwrap();
            let (plain, shared) = (program(seed, None), program(seed, Some(&space)));
            let apart = plain.iter().zip(&shared).position(|(a, b)| a != b);
            assert_eq!(apart, None, "seed {seed}: the first difference of {}", plain.len());
            assert_eq!(plain.len(), shared.len());
            space.check().unwrap();
        }
    });
}

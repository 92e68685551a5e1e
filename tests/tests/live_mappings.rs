//! How many mappings a program may have bounds what it sees of cards' own memory; what is more scattered is copied, and the
//! program itself is left enough. One test: the bound is one of the process.

use farside::{
    Backing, CardBuffer, CardId, Error, KernelContext, Space, WindowError, Write, WriteSpan,
};

const PAGE: usize = 4096;
/// Words of a page.
const WORDS: usize = PAGE / 8;

/// Mappings of this process.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

fn allowed() -> usize {
    std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap()
}

/// Buffers of so many pages, of which no two follow one another in the card's memory.
fn scattered(space: &Space, card: CardId, sizes: &[usize]) -> Vec<CardBuffer<u64>> {
    let page = || space.alloc_on::<u64>(card, WORDS, Backing::Eager).unwrap();
    let holes: usize = sizes.iter().sum();
    let mut pages: Vec<_> = (0..2 * holes).map(|_| Some(page())).collect();
    pages.iter_mut().step_by(2).for_each(|page| drop(page.take()));
    let free = space.own_memory_free(card).unwrap() as usize - holes * PAGE;
    // What was never used lies in one piece: it is taken first.
    let rest = (free > 0).then(|| space.alloc_on::<u8>(card, free, Backing::Eager).unwrap());
    let buffer = |&pages: &usize| space.alloc_on(card, pages * WORDS, Backing::Eager).unwrap();
    let buffers = sizes.iter().map(buffer).collect();
    drop((pages, rest));
    buffers
}

/// Writes a word to each page by a kernel, of memory that the program cannot see.
fn number(space: &Space, card: CardId, buffer: &mut CardBuffer<u64>) -> Result<(), Error> {
    let store = |kernel: &mut KernelContext, span: WriteSpan<u64>| {
        (0..span.len()).step_by(WORDS).try_for_each(|at| kernel.store(span.ptr(at), at as u64 + 1))
    };
    space.kernel("number").on(card).run(Write(buffer.host_mut()?), store)
}

fn is_numbered(words: &[u64]) -> bool {
    words.iter().step_by(WORDS).enumerate().all(|(page, &word)| word == (page * WORDS) as u64 + 1)
}

fn refusal(buffer: &CardBuffer<u64>) -> String {
    match buffer.host().map(drop) {
        Err(error @ WindowError::NotShown { .. }) => error.to_string(),
        other => panic!("it is mapped, or refused otherwise: {other:?}"),
    }
}

/// Mappings of the program's own: pages of which every second one can be read.
struct Others(*mut libc::c_void, usize);

impl Others {
    fn new(count: usize) -> Others {
        let bytes = count * PAGE;
        // SAFETY: a new mapping where the kernel likes touches nothing.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        for page in (0..count).step_by(2) {
            // SAFETY: a page of that mapping, which nobody uses.
            let done =
                unsafe { libc::mprotect(start.byte_add(page * PAGE), PAGE, libc::PROT_READ) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        }
        Others(start, bytes)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // SAFETY: that mapping, which nobody uses.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

#[test]
fn what_a_process_cannot_map_is_copied_and_the_program_has_mappings_left() {
    let allowed = allowed();
    let most = allowed / 4 * 3;
    // Nearly as many pieces as pages: here and there two holes meet.
    let (first, left) = (most / 2, 200);
    let sizes = [first, most - first - left, 2 * left, left / 2];
    let own = 2 * sizes.iter().sum::<usize>() * PAGE;
    // Several cards: the bound is not of each of them.
    let builder = Space::builder().cards(3).card_window(own as u64).address_space(4 << 20);
    let space = builder.build().unwrap();
    let cards = [CardId(0), CardId(1), CardId(2)];
    let before = mappings();
    let [mut first, third]: [_; 2] =
        scattered(&space, cards[0], &[sizes[0], sizes[2]]).try_into().unwrap();
    let [mut second, mut fourth]: [_; 2] =
        scattered(&space, cards[1], &[sizes[1], sizes[3]]).try_into().unwrap();
    number(&space, cards[0], &mut first).unwrap();
    number(&space, cards[1], &mut second).unwrap();
    assert!(is_numbered(first.host().unwrap()) && is_numbered(second.host().unwrap()));

    // What does not fit is not mapped, and copied; what does is.
    let told = refusal(&third);
    assert!(told.contains("vm.max_map_count") && told.contains("to_vec"), "{told}");
    assert!(told.contains(&format!("takes {most} at most")), "{told}");
    assert!(third.to_vec().unwrap().iter().all(|&word| word == 0));
    number(&space, cards[1], &mut fourth).unwrap();
    assert!(is_numbered(&fourth.to_vec().unwrap()));
    assert!(mappings() < allowed / 8 * 7, "the program has some left");

    // What is freed is no mapping any more, and another has its place.
    drop(second);
    assert!(third.host().is_ok());
    drop((first, third, fourth));
    assert!(mappings() < before + 100, "{} mappings, {before} before", mappings());

    // A program that has many itself keeps them.
    let count = allowed - mappings() - 2000;
    let others = Others::new(count);
    let mut many = scattered(&space, cards[2], &[3000]).remove(0);
    refusal(&many);
    assert!(many.to_vec().unwrap().iter().all(|&word| word == 0));
    drop(Others::new(100));
    drop(others);
    number(&space, cards[2], &mut many).unwrap();
    assert!(is_numbered(many.host().unwrap()));
}

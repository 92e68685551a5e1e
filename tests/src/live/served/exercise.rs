//! A piece of a program in which every kind of step comes, and which knows what its memory must
//! hold whenever it is interrupted.

use std::time::{Duration, Instant};

use farside::{
    Advice, Buffer, CardId, Error, KernelError, LiveError, MemoryId, PageState, Read, Space, Value,
    Write,
};
use farside_types::{CancelReason, PageNo};

/// Words of a page.
const PAGE: usize = 512;

/// What the words hold at first: never 0, so that lost memory cannot pass for it.
const FIRST: u64 = 1000;

/// Memory in which all words are equal, and what they are.
#[derive(Debug)]
pub struct Exercise<'a> {
    space: &'a Space,
    data: Buffer<u64>,
    /// What every word was before the last change, and what it is after it. The same when that
    /// change has ended well.
    before: u64,
    after: u64,
}

impl<'a> Exercise<'a> {
    /// So many pages of a space.
    ///
    /// # Panics
    /// If they cannot be had.
    pub fn new(space: &'a Space, pages: usize) -> Exercise<'a> {
        let mut data = space.alloc_named::<u64>(pages * PAGE, "exercise").expect("memory");
        data.fill(FIRST);
        Exercise { space, data, before: FIRST, after: FIRST }
    }

    /// Changes the pages and moves them between the host and two cards in every way there is. Ends
    /// with the first error.
    ///
    /// # Errors
    /// That of the first thing that did not work.
    ///
    /// # Panics
    /// If a result is wrong.
    pub fn run(&mut self, a: CardId, b: CardId) -> Result<(), Error> {
        let space = self.space;
        // By demand: from the host, from card to card, and back by request.
        self.change(a)?;
        self.change(b)?;
        self.change(a)?;
        space.migrate(&self.data, MemoryId::HOST)?;
        self.change(b)?;
        // By request: from card to card, and from the host.
        space.migrate(&self.data, a)?;
        space.migrate(&self.data, MemoryId::HOST)?;
        space.migrate(&self.data, a)?;
        self.sum(b)?;
        // A few pages at a time.
        for part in self.data.chunks(4 * PAGE).take(6) {
            space.migrate(part, MemoryId::HOST)?;
        }
        // Memory that was never written.
        let mut fresh = space.alloc::<u64>(20 * PAGE)?;
        assert_eq!(space.kernel("farside.sum").on(a).call(Read(&fresh))?, 0, "fresh memory");
        space.kernel("farside.fill").on(a).call((Write(&mut fresh), Value(3u64)))?;
        assert_eq!(
            space.kernel("farside.sum").on(b).call(Read(&fresh))?,
            3 * fresh.len() as u64,
            "memory that {a} has filled, as {b} sees it"
        );
        // Copies everywhere, and a write that takes them away.
        space.advise(&self.data, Advice::ReadMostly(true))?;
        self.sum(a)?;
        self.sum(b)?;
        self.change(a)?;
        self.sum(b)?;
        space.advise(&self.data, Advice::ReadMostly(false))?;
        // An access that is refused.
        space.set_read_only(&self.data, true)?;
        let refused = space.kernel("farside.increment").on(a).call(Write(&mut self.data));
        match refused {
            Err(Error::Kernel(KernelError::Fault { reason: CancelReason::ReadOnly, .. })) => {}
            Err(error) => return Err(error),
            Ok(_) => panic!("memory that may only be read was written"),
        }
        space.set_read_only(&self.data, false)?;
        space.trim()?;
        // Home: who looks at the pages then depends on no card.
        space.migrate(&self.data, MemoryId::HOST)?;
        Ok(())
    }

    /// Adds 1 to all words.
    fn change(&mut self, card: CardId) -> Result<(), Error> {
        self.after = self.before + 1;
        self.space.kernel("farside.increment").on(card).call(Write(&mut self.data))?;
        self.before = self.after;
        self.sum(card)
    }

    fn sum(&self, card: CardId) -> Result<(), Error> {
        let sum = self.space.kernel("farside.sum").on(card).call(Read(&self.data))?;
        assert_eq!(sum, self.after * self.data.len() as u64, "the sum of all words on {card}");
        Ok(())
    }

    /// Looks at every page, on the host. Gives how many are lost.
    ///
    /// # Panics
    /// If one holds something else than it may, or does not come to rest.
    #[track_caller]
    pub fn check(&self) -> usize {
        let lost = self.await_rest();
        for (page, words) in (0..).zip(self.data.chunks(PAGE)) {
            let number = PageNo(self.data.addr().page().0 + page);
            if lost.contains(&number) {
                continue;
            }
            let first = words[0];
            assert!(words.iter().all(|&word| word == first), "{number} was changed in part");
            let may = [self.before, self.after];
            assert!(may.contains(&first), "{number} holds {first} instead of one of {may:?}");
        }
        lost.len()
    }

    /// Waits until no page moves any more. Gives those that are lost.
    #[track_caller]
    fn await_rest(&self) -> Vec<PageNo> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let parts = self.space.locate(&self.data).expect("the pages are the space's");
            if parts.iter().all(|part| part.state != PageState::Moving) {
                let lost = parts.iter().filter(|part| part.state == PageState::Lost);
                return lost.flat_map(|part| part.range.pages()).collect();
            }
            assert!(Instant::now() < end, "pages move for ever: {parts:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Requires that an error is one that may be said to a program whose card is gone, or stands still.
///
/// # Panics
/// If it is another.
#[track_caller]
pub fn expect_loss(error: &Error) {
    let fits = matches!(
        error,
        Error::Kernel(
            KernelError::Dropped { .. } | KernelError::Fault { .. } | KernelError::Hung { .. }
        ) | Error::Live(LiveError::Request(_))
    );
    assert!(fits, "{error}");
}

/// Every kind of step that comes in an exercise, by the name of its operation.
pub const STEPS: [&str; 12] = [
    "host-unmap",
    "host-protect",
    "host-map",
    "host-release",
    "card-unmap",
    "card-protect",
    "card-map",
    "card-resume",
    "card-cancel",
    "card-launch",
    "copy",
    "fill",
];

//! The answers that one reader or writer gets.

use std::collections::VecDeque;

use farside_types::Access;

use super::{WindowFault, WindowGeometry, WindowMapping};

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowAnswer {
    /// The address is none of the window: it goes on as it is.
    Untranslated(u64),
    /// The place in a memory of the card.
    At {
        /// The memory, 0 to 15.
        memory: u8,
        /// The address in it.
        address: u64,
    },
    /// The address cannot be reached.
    Fault {
        /// Why.
        fault: WindowFault,
        /// The address that was asked for.
        address: u64,
    },
}

/// Where the result of a request comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// It needs none.
    Pass,
    /// The request of the window before it.
    Same,
    /// A walk of its own.
    Walk,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    address: u64,
    access: Access,
    source: Source,
}

/// A translator that holds one translation, that of the page which was asked for last.
///
/// Requests are answered in their order. A request for the page of the request before it shares that
/// one's walk. One that is accepted after an invalidation of its page is answered by a walk that began
/// after it; what was accepted before is waited for ([`WindowTranslator::is_drained`]). A fault that
/// somebody has seen is forgotten.
#[derive(Clone, Debug)]
pub struct WindowTranslator {
    geometry: WindowGeometry,
    base: u64,
    last: Option<u64>,
    waiting: VecDeque<Waiting>,
    walked: VecDeque<Result<WindowMapping, WindowFault>>,
    /// Of the request of the window that was answered last.
    result: Result<WindowMapping, WindowFault>,
    /// Of those that wait, how many were accepted before the last invalidation.
    draining: usize,
}

impl WindowTranslator {
    /// Of a window that begins at `base`, aligned to its size.
    pub fn new(geometry: &WindowGeometry, base: u64) -> WindowTranslator {
        WindowTranslator {
            geometry: geometry.clone(),
            base,
            last: None,
            waiting: VecDeque::new(),
            walked: VecDeque::new(),
            result: Err(WindowFault::NotMapped),
            draining: 0,
        }
    }

    /// A request. Returns the page that must be walked for, if one must.
    pub fn accept(&mut self, address: u64, access: Access) -> Option<u64> {
        let page = self.page(address);
        let source = match page {
            None => Source::Pass,
            Some(_) if page == self.last => Source::Same,
            Some(_) => Source::Walk,
        };
        self.last = page.or(self.last);
        self.waiting.push_back(Waiting { address, access, source });
        page.filter(|_| matches!(source, Source::Walk))
    }

    /// The result of a walk; they come in the order in which [`WindowTranslator::accept`] asked for them.
    pub fn walked(&mut self, result: Result<WindowMapping, WindowFault>) {
        self.walked.push_back(result);
    }

    /// The answer to the oldest request, if it is known. Each is given once.
    pub fn answer(&mut self) -> Option<WindowAnswer> {
        let oldest = *self.waiting.front()?;
        let answer = match oldest.source {
            Source::Pass => WindowAnswer::Untranslated(oldest.address),
            Source::Same => self.translated(oldest),
            Source::Walk => {
                self.result = self.walked.pop_front()?;
                self.translated(oldest)
            }
        };
        self.waiting.pop_front();
        self.draining = self.draining.saturating_sub(1);
        if matches!(answer, WindowAnswer::Fault { .. }) {
            self.last = None;
        }
        Some(answer)
    }

    /// The pages from `first` to `last` are not what they were.
    pub fn invalidate(&mut self, first: u64, last: u64) {
        if self.last.is_some_and(|page| (first..=last).contains(&page)) {
            self.last = None;
        }
        self.draining = self.waiting.len();
    }

    /// Whether every request that was accepted before the last invalidation has been answered.
    pub fn is_drained(&self) -> bool {
        self.draining == 0
    }

    /// Requests without an answer.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The page of an address, counted from the window's begin, if it is one of the window.
    fn page(&self, address: u64) -> Option<u64> {
        let within = address.wrapping_sub(self.base);
        (within >> self.geometry.window_bits() == 0).then_some(within >> self.geometry.page_bits())
    }

    fn translated(&self, Waiting { address, access, .. }: Waiting) -> WindowAnswer {
        let reached = self.result.and_then(|mapping| {
            if mapping.rights.allows(access) { Ok(mapping) } else { Err(WindowFault::ReadOnly) }
        });
        match reached {
            Err(fault) => WindowAnswer::Fault { fault, address },
            Ok(WindowMapping { frame, memory, .. }) => {
                let bits = self.geometry.page_bits();
                let within = address & ((1 << bits) - 1);
                WindowAnswer::At { memory, address: u64::from(frame) << bits | within }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_types::Rights;

    use super::*;
    use Access::{Read, Write};

    const BASE: u64 = 1 << 40;
    const PAGE: u64 = 1 << 12;

    fn translator() -> WindowTranslator {
        WindowTranslator::new(&WindowGeometry::new(12, &[2, 3], 20).unwrap(), BASE)
    }

    fn mapping(frame: u32, rights: Rights) -> Result<WindowMapping, WindowFault> {
        Ok(WindowMapping { frame, memory: 2, rights, size: 0 })
    }

    fn at(address: u64) -> Option<WindowAnswer> {
        Some(WindowAnswer::At { memory: 2, address })
    }

    #[test]
    fn requests_for_one_page_share_a_walk_and_are_answered_in_order() {
        let mut translator = translator();
        assert_eq!(translator.accept(BASE + 3 * PAGE + 8, Read), Some(3));
        assert_eq!(translator.accept(BASE + 3 * PAGE + 16, Write), None);
        assert_eq!(translator.accept(BASE - 1, Read), None);
        assert_eq!(translator.accept(BASE + 32 * PAGE, Read), None);
        assert_eq!(translator.accept(BASE + 3 * PAGE, Read), None, "others go past");
        assert_eq!(translator.accept(BASE + 31 * PAGE, Read), Some(31));
        assert_eq!(translator.answer(), None, "the walk is under way");
        translator.walked(mapping(7, Rights::ReadWrite));
        assert_eq!(translator.answer(), at(7 * PAGE + 8));
        assert_eq!(translator.answer(), at(7 * PAGE + 16));
        assert_eq!(translator.answer(), Some(WindowAnswer::Untranslated(BASE - 1)));
        assert_eq!(translator.answer(), Some(WindowAnswer::Untranslated(BASE + 32 * PAGE)));
        assert_eq!(translator.answer(), at(7 * PAGE));
        assert_eq!((translator.answer(), translator.waiting()), (None, 1));
    }

    #[test]
    fn an_invalidation_is_for_what_comes_after_it() {
        let mut translator = translator();
        translator.accept(BASE, Read);
        translator.invalidate(1, 31);
        assert_eq!(translator.accept(BASE, Read), None, "other pages");
        translator.invalidate(0, 0);
        assert_eq!(translator.accept(BASE, Read), Some(0));
        translator.walked(mapping(1, Rights::Read));
        translator.walked(mapping(2, Rights::Read));
        assert!(!translator.is_drained());
        assert_eq!((translator.answer(), translator.answer()), (at(PAGE), at(PAGE)));
        assert!(translator.is_drained());
        assert_eq!(translator.answer(), at(2 * PAGE));
    }

    #[test]
    fn a_fault_is_told_and_forgotten() {
        let mut translator = translator();
        translator.accept(BASE + 5, Write);
        translator.walked(mapping(1, Rights::Read));
        let fault = WindowAnswer::Fault { fault: WindowFault::ReadOnly, address: BASE + 5 };
        assert_eq!(translator.answer(), Some(fault));
        assert_eq!(translator.accept(BASE, Read), Some(0));
        translator.walked(Err(WindowFault::NotMapped));
        let fault = WindowAnswer::Fault { fault: WindowFault::NotMapped, address: BASE };
        assert_eq!(translator.answer(), Some(fault));
        assert_eq!(translator.accept(BASE, Read), Some(0));
    }
}

//! Window checks that a test takes away, to see that it notices.

/// Whose check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unchecked {
    /// The lender's end lets its device reach anything.
    AtLender,
    /// The borrower's end lets the lender write what is only to be read.
    AtBorrower,
}

#[cfg(test)]
thread_local! {
    static TAKEN: std::cell::RefCell<Vec<Unchecked>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Takes a check away, in this thread, from here on.
#[cfg(test)]
pub(crate) fn take_away(check: Unchecked) {
    TAKEN.with_borrow_mut(|taken| taken.push(check));
}

/// Whether a check was taken away.
#[cfg(test)]
pub(super) fn is_away(check: Unchecked) -> bool {
    TAKEN.with_borrow(|taken| taken.contains(&check))
}

/// Whether a check was taken away: never outside of tests.
#[cfg(not(test))]
pub(super) const fn is_away(_: Unchecked) -> bool {
    false
}

//! Protecting steps that a test takes away, to see that it notices.

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// All classes use the credit of posted frames.
    SharedCredits,
    /// What was received already is handed on once more.
    KeepDuplicates,
    /// After a reconnect everything that is kept is sent again, whatever the other end has.
    ResendAll,
    /// An interrupt goes before what was posted before it.
    InterruptFirst,
    /// Bulk is taken without looking at what is ahead.
    UnboundedBulk,
}

#[cfg(test)]
thread_local! {
    static TAKEN: std::cell::RefCell<Vec<Mutation>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Takes a step away, in this thread, from here on.
#[cfg(test)]
pub(crate) fn take_away(mutation: Mutation) {
    TAKEN.with_borrow_mut(|taken| taken.push(mutation));
}

/// Whether a step was taken away.
#[cfg(test)]
pub(crate) fn on(mutation: Mutation) -> bool {
    TAKEN.with_borrow(|taken| taken.contains(&mutation))
}

/// Whether a step was taken away: never outside of tests.
#[cfg(not(test))]
pub(crate) const fn on(_: Mutation) -> bool {
    false
}

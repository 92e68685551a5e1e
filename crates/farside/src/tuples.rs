//! Which tuples are arguments: those of one to eight, as a kernel has no more.

/// Calls the macro `$implement` with the names of the types of each tuple that can be arguments.
macro_rules! for_tuples {
    ($implement:ident) => {
        $implement!(
            (A),
            (A, B),
            (A, B, C),
            (A, B, C, D),
            (A, B, C, D, E),
            (A, B, C, D, E, F),
            (A, B, C, D, E, F, G),
            (A, B, C, D, E, F, G, H)
        );
    };
}

//! Two ends under virtual time, over a connection that a test slows down, cuts and lies about.

mod greetings;
mod hostile;
mod ordering;
mod pair;
mod properties;

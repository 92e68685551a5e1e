//! From a fault to a plan: who needs which pages, and what is brought along.

pub(crate) mod open;
pub(crate) mod prefetch;
pub(crate) mod serve;
pub(crate) mod thrash;

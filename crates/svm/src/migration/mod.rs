//! From a plan to pages in their new place: chains of commands, their ends, and what fails in between.

pub(crate) mod chain;
pub(crate) mod detached;
pub(crate) mod evict;
pub(crate) mod lost;
pub(crate) mod migrate;
pub(crate) mod plan;
pub(crate) mod rollback;
pub(crate) mod settle;
pub(crate) mod stop;

//! From a plan to pages in their new place: chains of commands, how they end, and what fails in between.

pub(crate) mod answers;
pub(crate) mod bounce;
pub(crate) mod chain;
pub(crate) mod chains;
pub(crate) mod detached;
pub(crate) mod evict;
pub(crate) mod follow;
pub(crate) mod lost;
pub(crate) mod plan;
pub(crate) mod planner;
pub(crate) mod prices;
pub(crate) mod rollback;
pub(crate) mod settle;
pub(crate) mod shadow;
pub(crate) mod stages;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod transition;
pub(crate) mod victims;

//! What others see of the driver: the events it takes, the commands and replies it gives, what can be
//! asked of it, and the requests of the program.

pub(crate) mod capability;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod event;
pub(crate) mod journal;
pub(crate) mod launch;
pub(crate) mod order;
pub(crate) mod query;
pub(crate) mod reply;
pub(crate) mod requests;
pub(crate) mod stats;
pub(crate) mod why;

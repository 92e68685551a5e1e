//! A borrowed card as its borrower's program finds it: a folder that the daemon of this host made.
//!
//! The folder holds a [`Ticket`], which says where the lender's end of the lease is and how both ends
//! know each other, and the [`Term`], which says until when the lease may be used. Nothing is sent once
//! that is over, so a program that was stopped for long touches nothing that somebody else has by then.
//! Renewing is the daemon's business; deciding, the lender's.

mod connection;
mod term;
mod ticket;

pub(crate) use connection::{Borrowed, NotReached, WhyGone, connect};
pub use term::{BootTime, Term};
pub use ticket::{Ticket, TicketError};

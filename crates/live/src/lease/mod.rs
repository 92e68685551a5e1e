//! A borrowed card as its borrower's program finds it: a folder that the daemon of this host made.
//!
//! The folder holds the socket of the borrower's end of the lease, a process that speaks to the lender's
//! end under TLS; a [`Ticket`], which says whose device it is; and the [`Term`], which says until when
//! the lease may be used. The borrower's end sends nothing once that is over, so a program that was
//! stopped for long touches nothing that somebody else has by then. No key is ever in the program.
//! Renewing is the daemon's business; deciding, the lender's.
//!
//! A card of this machine needs no link (`here`): the program is handed a connection to the card's own
//! process, and nobody is between the two from then on.

mod connection;
mod here;
mod term;
mod ticket;

pub(crate) use connection::{Borrowed, NotReached, WantedBack, WhyGone, connect};
pub use here::hand;
pub(crate) use here::{Handed, connect_here, is_here};
pub use term::{BootTime, Term};
pub use ticket::{Ticket, TicketError};

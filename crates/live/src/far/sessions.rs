//! The programs that use a card at a time, each by the number of its link. A connection that
//! comes anew belongs to the program that has drawn its number, or to a new one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Mutex;

use farside_linux::lock::lock;

use super::carry::{Lines, NewLines, lines};
use super::line::Line;

/// Programs at a time, at most: a card has no more functions.
const SESSIONS_MAX: usize = farside_softcard::serve::FUNCTIONS_MAX as usize;

/// See the module.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<u64, NewLines>>);

/// What becomes of a connection.
#[derive(Debug)]
pub enum Came {
    /// It is the first of a program, whose others come by these.
    First(Line, Lines),
    /// It was handed to who serves the program already.
    Again,
    /// There are as many programs as the card can serve.
    TooMany(Line),
}

impl Sessions {
    /// A connection of the program with this number has come.
    ///
    /// # Errors
    /// No descriptor to tell of others.
    pub fn came(&self, session: u64, line: Line) -> io::Result<Came> {
        let mut sessions = lock(&self.0);
        let count = sessions.len();
        match sessions.entry(session) {
            Entry::Occupied(known) => {
                known.get().give(line);
                Ok(Came::Again)
            }
            Entry::Vacant(_) if count >= SESSIONS_MAX => Ok(Came::TooMany(line)),
            Entry::Vacant(place) => {
                let (new, lines) = lines()?;
                place.insert(new);
                Ok(Came::First(line, lines))
            }
        }
    }

    /// A program has gone.
    pub fn left(&self, session: u64) {
        lock(&self.0).remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use farside_vfio_user::unix::Plain;

    use super::*;

    fn line() -> (UnixStream, Line) {
        let (near, far) = UnixStream::pair().unwrap();
        (near, Line::new(Box::new(Plain::new(far))).unwrap())
    }

    #[test]
    fn a_programs_connections_go_to_who_serves_it_and_others_are_others() {
        let sessions = Sessions::default();
        let mut near = Vec::new();
        let mut come = |session| {
            let (own, line) = line();
            near.push(own);
            sessions.came(session, line).unwrap()
        };
        let Came::First(_, lines) = come(7) else { panic!("nobody was there") };
        assert!(matches!(come(7), Came::Again));
        assert!(lines.wait().is_some(), "who serves it has the connection");
        assert!(matches!(come(8), Came::First(..)));
        for session in 100..100 + SESSIONS_MAX as u64 - 2 {
            assert!(matches!(come(session), Came::First(..)));
        }
        assert!(matches!(come(9), Came::TooMany(_)));
        assert!(matches!(come(8), Came::Again), "who is there goes on");
        sessions.left(8);
        assert!(matches!(come(9), Came::First(..)));
    }
}

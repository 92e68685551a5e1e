//! Requests of this side that wait for a reply.

/// Who made a request: a number that is never used again on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

struct Entry<T> {
    message: u16,
    request: RequestId,
    what: T,
    forgotten: bool,
}

/// The table of them, bounded. Few wait at a time, and mostly the oldest is answered: a scan is fast.
pub(crate) struct Pending<T> {
    entries: Vec<Entry<T>>,
    limit: usize,
    /// Message ids are `base` or above: the two sides of a connection number their requests apart.
    base: u16,
    next: u64,
}

/// A reply that was found in the table.
pub(crate) struct Answered<T> {
    pub(crate) request: RequestId,
    pub(crate) what: T,
    pub(crate) forgotten: bool,
}

impl<T> Pending<T> {
    pub(crate) fn new(limit: u32, base: u16) -> Pending<T> {
        // Message ids must not run out.
        let limit = (limit as usize).min(usize::from(u16::MAX - base) / 2);
        Pending { entries: Vec::new(), limit, base, next: 0 }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.limit
    }

    /// The numbers for a request that gets no reply.
    pub(crate) fn unanswered(&mut self) -> u16 {
        let span = u64::from(u16::MAX - self.base) + 1;
        loop {
            let message = self.base + (self.next % span) as u16;
            self.next += 1;
            if !self.entries.iter().any(|entry| entry.message == message) {
                return message;
            }
        }
    }

    /// Enters a request. The caller has checked `is_full`.
    pub(crate) fn insert(&mut self, what: T) -> (u16, RequestId) {
        let message = self.unanswered();
        let request = RequestId(self.next);
        self.entries.push(Entry { message, request, what, forgotten: false });
        (message, request)
    }

    /// Takes out the request that a reply answers.
    pub(crate) fn take(&mut self, message: u16) -> Option<Answered<T>> {
        let at = self.entries.iter().position(|entry| entry.message == message)?;
        let entry = self.entries.remove(at);
        Some(Answered { request: entry.request, what: entry.what, forgotten: entry.forgotten })
    }

    /// Takes out all: no reply is awaited any more.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Whether `is` holds for a request that waits.
    pub(crate) fn any(&self, is: impl Fn(&T) -> bool) -> bool {
        self.entries.iter().any(|entry| is(&entry.what))
    }

    /// Lets the reply to a request be dropped when it comes. False if none waits.
    pub(crate) fn forget(&mut self, request: RequestId) -> bool {
        match self.entries.iter_mut().find(|entry| entry.request == request) {
            Some(entry) => {
                entry.forgotten = true;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_ids_wrap_and_skip_those_in_use() {
        let mut pending = Pending::new(4, 0xfff0);
        let (held, _) = pending.insert(1);
        let mut seen = Vec::new();
        for _ in 0..40 {
            let (message, _) = pending.insert(2);
            assert_ne!(message, held);
            assert!(message >= 0xfff0);
            assert_eq!(pending.take(message).unwrap().what, 2);
            seen.push(message);
        }
        assert_eq!(pending.take(held).unwrap().what, 1);
        assert!(pending.take(held).is_none());
    }

    #[test]
    fn a_forgotten_request_says_so() {
        let mut pending = Pending::new(4, 0);
        let (message, request) = pending.insert(());
        assert!(pending.forget(request));
        let answered = pending.take(message).unwrap();
        assert!(answered.forgotten);
        assert_eq!(answered.request, request);
        assert!(!pending.forget(request));
    }
}

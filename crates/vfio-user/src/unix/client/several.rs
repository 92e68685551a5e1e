//! Several calls open at a time: started one after the other, finished in any order.

use std::time::Instant;

use super::{BlockingClient, CallError, Stream, wrong_reply};
use crate::client::Reply;
use crate::errno::Errno;
use crate::error::RequestError;
use crate::pending::RequestId;
use crate::server::RegionAccess;
use crate::wire::Command;

/// A call that was started. It is finished by [`finish`](BlockingClient::finish), or given up by
/// [`forget`](BlockingClient::forget); one that is dropped keeps its place among the calls that may be
/// open.
#[must_use = "the call is open until it is finished or forgotten"]
#[derive(Debug, PartialEq, Eq)]
pub struct OpenCall {
    request: RequestId,
}

/// The answer to a call, kept until it is asked for.
type Answer = Result<Vec<u8>, Errno>;

/// Calls that were started and not finished yet, at most so many.
#[derive(Debug)]
pub(super) struct Calls {
    open: Vec<(RequestId, Option<Answer>)>,
    limit: u32,
}

impl Calls {
    pub(super) fn new(limit: u32) -> Calls {
        Calls { open: Vec::new(), limit }
    }

    fn check_room(&self) -> Result<(), RequestError> {
        if self.open.len() >= self.limit as usize {
            return Err(RequestError::TooManyOutstanding { limit: self.limit });
        }
        Ok(())
    }

    fn insert(&mut self, request: RequestId) -> OpenCall {
        self.open.push((request, None));
        OpenCall { request }
    }

    /// Keeps the reply to a call that was started. Any other reply came too late, and is dropped.
    pub(super) fn keep(&mut self, request: RequestId, reply: Result<Reply<'_>, Errno>) {
        let call = self.open.iter_mut().find(|(open, _)| *open == request);
        if let Some((_, answer)) = call {
            *answer = Some(reply.and_then(|reply| match reply {
                Reply::Data(data) | Reply::Other(data, _) => Ok(data.to_vec()),
                Reply::Done => Ok(Vec::new()),
                _ => Err(Errno::PROTO),
            }));
        }
    }

    /// Takes a call out if its reply has come.
    fn take_answered(&mut self, call: &OpenCall) -> Option<Answer> {
        let at = self.open.iter().position(|(open, _)| *open == call.request)?;
        self.open[at].1.is_some().then(|| self.open.remove(at).1).flatten()
    }

    fn remove(&mut self, call: &OpenCall) {
        self.open.retain(|(open, _)| *open != call.request);
    }
}

impl<S: Stream> BlockingClient<S> {
    /// Starts to read a region; [`finish`](BlockingClient::finish) gives the bytes.
    ///
    /// # Errors
    ///
    /// `TooManyOutstanding` if as many calls are open as may be; see [`CallError`].
    pub fn start_read(
        &mut self,
        region: u32,
        offset: u64,
        count: u32,
    ) -> Result<OpenCall, CallError> {
        self.calls.check_room()?;
        let request = self.client.region_read(RegionAccess { region, offset, count })?;
        self.started(request)
    }

    /// Starts to write a region; [`finish`](BlockingClient::finish) gives no bytes.
    ///
    /// # Errors
    ///
    /// As for [`start_read`](BlockingClient::start_read).
    pub fn start_write(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<OpenCall, CallError> {
        self.calls.check_room()?;
        let request = self.client.region_write(region, offset, data)?;
        self.started(request)
    }

    /// Starts a command that the engines do not know; [`finish`](BlockingClient::finish) gives the data
    /// of the answer.
    ///
    /// # Errors
    ///
    /// As for [`start_read`](BlockingClient::start_read).
    pub fn start_other(&mut self, command: Command, data: &[u8]) -> Result<OpenCall, CallError> {
        self.calls.check_room()?;
        let request = self.client.other(command, data, Vec::new())?;
        self.started(request)
    }

    fn started(&mut self, request: RequestId) -> Result<OpenCall, CallError> {
        let call = self.calls.insert(request);
        let sent = self.send_all(Instant::now() + self.time_limit);
        if let Err(error) = sent {
            self.forget(call);
            return Err(error);
        }
        Ok(call)
    }

    /// Waits for the answer to a call that was started, and gives its bytes. Answers to others that come
    /// first are kept for them.
    ///
    /// # Errors
    ///
    /// See [`CallError`]. The call is over in any case.
    pub fn finish(&mut self, call: OpenCall) -> Result<Vec<u8>, CallError> {
        if let Some(answer) = self.calls.take_answered(&call) {
            return answer.map_err(CallError::Refused);
        }
        self.calls.remove(&call);
        self.wait(call.request, |reply| match reply {
            Reply::Data(data) | Reply::Other(data, _) => Ok(data.to_vec()),
            Reply::Done => Ok(Vec::new()),
            _ => Err(wrong_reply()),
        })
    }

    /// Gives up a call that was started: its answer is dropped when it comes.
    pub fn forget(&mut self, call: OpenCall) {
        self.calls.remove(&call);
        self.client.forget(call.request);
    }
}

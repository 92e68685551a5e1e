//! A connection of a service, and what is known of whoever made it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// See the module. What is known of the caller comes with each of its requests.
pub(super) struct Connection<S, I> {
    stream: S,
    caller: I,
    /// It is closed then, whatever goes on.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S, I> Connection<S, I> {
    /// One that lasts as long as both ends like, or for `limit`.
    pub(super) fn new(stream: S, caller: I, limit: Option<Duration>) -> Connection<S, I> {
        let until = limit.map(|limit| Box::pin(sleep(limit)));
        Connection { stream, caller, until }
    }

    fn look_at_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.until.as_mut().map(|until| until.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Err(io::ErrorKind::TimedOut.into()),
            Some(Poll::Pending) | None => Ok(()),
        }
    }
}

impl<S, I: Clone + Send + Sync + 'static> Connected for Connection<S, I> {
    type ConnectInfo = I;

    fn connect_info(&self) -> I {
        self.caller.clone()
    }
}

impl<S: AsyncRead + Unpin, I: Unpin> AsyncRead for Connection<S, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.look_at_time(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, I: Unpin> AsyncWrite for Connection<S, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_may_last_for_a_while_only_ends_then() {
        let (near, _far) = tokio::io::duplex(16);
        let mut limited = Connection::new(near, (), Some(Duration::from_millis(20)));
        let ended = limited.read_u8().await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }
}

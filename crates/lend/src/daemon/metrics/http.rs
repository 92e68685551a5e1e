//! The little HTTP that a scraper needs: one request to a connection, for which it has a few seconds. A few
//! connections are served at a time; more are closed at once.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::LendError;

/// Connections at a time, at most.
const CONNECTIONS_MAX: usize = 16;
/// How long one may take, whatever it does.
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a request that are kept, at most; hyper takes no less.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Serves until it is dropped.
#[derive(Debug)]
pub(in super::super) struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Serves what `text` gives, at `/metrics`.
    ///
    /// # Errors
    /// Nothing can listen there.
    pub(in super::super) async fn start(
        address: SocketAddr,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Server, LendError> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let why = format!("cannot serve metrics at {address}: {error}; choose another address");
            LendError::Refused(why)
        })?;
        let address = listener.local_addr().map_err(LendError::system("serving metrics"))?;
        let task = tokio::spawn(serve(listener, Arc::new(text)));
        Ok(Server { address, task })
    }

    pub(in super::super) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve<T: Fn() -> String + Send + Sync + 'static>(listener: TcpListener, text: Arc<T>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a scraper cannot be let in");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // One that finds no place is closed: others have a few seconds at most.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let text = Arc::clone(&text);
        tokio::spawn(async move {
            // How it ends is the scraper's business.
            let _ = timeout(LIMIT, answer(stream, text)).await;
            drop(place);
        });
    }
}

async fn answer<T: Fn() -> String>(stream: TcpStream, text: Arc<T>) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &*text);
        async { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn respond(request: &Request<Incoming>, text: &impl Fn() -> String) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, text()),
        (&Method::GET, _) => (StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "GET /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    fn start() -> impl Future<Output = Result<Server, LendError>> {
        Server::start("127.0.0.1:0".parse().unwrap(), || "x 1\n".to_owned())
    }

    #[tokio::test]
    async fn a_scraper_gets_the_text_and_others_what_they_ask_for() {
        let server = start().await.unwrap();
        let good = ask(server.address(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(good.starts_with("HTTP/1.1 200") && good.ends_with("\r\n\r\nx 1\n"), "{good}");
        assert!(good.contains("version=0.0.4"), "{good}");
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\nHost: x\r\ncontent-length: 0\r\n\r\n", "405"),
            (b"nonsense\r\n\r\n", "400"),
        ] {
            let answer = ask(server.address(), request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        }
        let endless = [b"GET /metrics HTTP/1.1\r\n".to_vec(), vec![b'x'; 64 << 10]].concat();
        assert!(!ask(server.address(), &endless).await.contains("x 1"));
    }

    #[tokio::test]
    async fn those_who_say_nothing_are_given_up_and_keep_nobody_out_for_long() {
        let server = start().await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..4 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(server.address()).await.unwrap());
        }
        let started = Instant::now();
        loop {
            let answer = ask(server.address(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
            if answer.contains("x 1") {
                break;
            }
            assert!(started.elapsed() < 4 * LIMIT, "nobody is served any more");
            sleep(Duration::from_millis(50)).await;
        }
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let server = start().await.unwrap();
        let again = Server::start(server.address(), String::new).await.unwrap_err().to_string();
        assert!(again.contains(&server.address().to_string()), "{again}");
    }
}

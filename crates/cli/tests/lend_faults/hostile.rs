//! Callers without end, in C's network: silent ones, ones without a certificate, and a member that opens
//! connection after connection. B goes on meanwhile.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_lend::home::Home;
use farside_lend::tls;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::await_that;
use crate::network::ADDRESS;
use crate::world::{World, program};

/// More than anybody gets.
const CALLS: usize = 100;
/// How long B may take beside them.
const LIMIT: Duration = Duration::from_secs(30);

fn call(world: &World) -> TcpStream {
    let connect = || TcpStream::connect(format!("{ADDRESS}:7301"));
    world.network.inside("c", connect).expect("A listens")
}

fn goes_on(world: &World, besides: &str) {
    let started = Instant::now();
    let said = world.b.run_within(&["available"], LIMIT);
    let said = said.unwrap_or_else(|why| panic!("besides {besides}: {why}\n{}", world.logs()));
    assert!(said.contains("card0@a"), "besides {besides}, B sees nothing: {said}");
    let words = program(1);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    world.b.run_within(&words, LIMIT).unwrap_or_else(|why| panic!("besides {besides}: {why}"));
    assert!(started.elapsed() < LIMIT, "besides {besides}: {:?}", started.elapsed());
}

/// Whether the other side has closed a connection on which it says nothing.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a limit");
    match stream.read(&mut [0; 256]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// Calls over TLS; gives the connections that are let in.
fn let_in(
    world: &World,
    config: &Arc<ClientConfig>,
) -> Vec<StreamOwned<ClientConnection, TcpStream>> {
    let mut inside = Vec::new();
    for _ in 0..CALLS {
        let mut stream = call(world);
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        let name = ServerName::try_from("a").expect("a name");
        let mut tls = ClientConnection::new(Arc::clone(config), name).expect("a client");
        while tls.is_handshaking() {
            if tls.complete_io(&mut stream).is_err() {
                break;
            }
        }
        // Whoever is let in hears the first words of HTTP/2.
        let mut said = [0; 9];
        let mut stream = StreamOwned::new(tls, stream);
        if stream.read_exact(&mut said).is_ok() {
            inside.push(stream);
        }
    }
    inside
}

#[test]
#[ignore = "scripts/lend/faults.sh runs it where there are network namespaces"]
fn callers_without_end_keep_nobody_else_out() {
    let world = World::new().unwrap_or_else(|why| panic!("there are no namespaces here: {why}"));
    let mut silent: Vec<TcpStream> = (0..CALLS).map(|_| call(&world)).collect();
    goes_on(&world, "silent callers");
    // Each has five seconds.
    await_that(LIMIT, "who does not say who it is is sent away", || {
        silent.retain_mut(|stream| !is_closed(stream));
        silent.is_empty()
    });

    let home = Home::at(Path::new(&world.c.home));
    let member = home.identity().expect("files").expect("C has joined");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(member.authority.clone())).expect("a certificate");
    let mut stranger = ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    stranger.alpn_protocols = vec![b"h2".to_vec()];
    let strangers = let_in(&world, &Arc::new(stranger));
    assert!((1..=32).contains(&strangers.len()), "{} strangers are in", strangers.len());
    goes_on(&world, "callers without a certificate");

    let members = let_in(&world, &member.client().expect("a configuration"));
    assert!((1..=32).contains(&members.len()), "{} connections of C are in", members.len());
    goes_on(&world, "a member with many connections");
    drop((strangers, members));
    assert!(world.c.run(&["available"]).expect("C is a member").contains("card0@a"));
}

//! What waits is bounded, in both engines, and a limit that is reached loses nothing.

use farside_vfio_user::client::{ClientEvent, MapRequest};
use farside_vfio_user::device::region;
use farside_vfio_user::server::RegionAccess;
use farside_vfio_user::{
    Client, DeviceInfo, Event, Limits, ProtocolError, Region, Reply, RequestError, Server, Token,
};

fn limits() -> Limits {
    Limits { max_outstanding: 8, max_queued_bytes: 2000, ..Limits::default() }
}

fn pair(client: Limits, server: Limits) -> (Client, Server) {
    let info = DeviceInfo::pci().region(region::BAR0, Region::read_write(0x1000));
    let mut server = Server::new(info, server).unwrap();
    let mut client = Client::new(client);
    client.negotiate().unwrap();
    up(&mut client, &mut server);
    assert!(matches!(server.poll(), Ok(Some(Event::Negotiated(_)))));
    down(&mut server, &mut client);
    assert!(matches!(client.poll(), Ok(Some(ClientEvent::Reply { reply: Ok(_), .. }))));
    (client, server)
}

fn up(client: &mut Client, server: &mut Server) {
    while let Some(transmit) = client.transmit() {
        server.receive(transmit.bytes, Vec::new()).unwrap();
        let count = transmit.bytes.len();
        client.sent(count);
    }
}

fn down(server: &mut Server, client: &mut Client) {
    while let Some(transmit) = server.transmit() {
        client.receive(transmit.bytes, Vec::new()).unwrap();
        let count = transmit.bytes.len();
        server.sent(count);
    }
}

/// The reads that the server gives out before it waits for answers.
fn taken(server: &mut Server) -> Vec<Token> {
    let mut tokens = Vec::new();
    while let Some(event) = server.poll().unwrap() {
        match event {
            Event::RegionRead { token, .. } => tokens.push(token),
            other => panic!("{other:?}"),
        }
    }
    tokens
}

fn replies(client: &mut Client) -> usize {
    let mut count = 0;
    while let Some(event) = client.poll().unwrap() {
        assert!(matches!(event, ClientEvent::Reply { reply: Ok(Reply::Data(_)), .. }));
        count += 1;
    }
    count
}

fn read(count: u32) -> RegionAccess {
    RegionAccess { region: region::BAR0, offset: 0, count }
}

#[test]
fn a_server_takes_no_more_commands_than_may_wait() {
    let (mut client, mut server) = pair(Limits::default(), limits());
    for _ in 0..20 {
        client.region_read(read(4)).unwrap();
    }
    up(&mut client, &mut server);
    let mut answered = 0;
    while answered < 20 {
        let tokens = taken(&mut server);
        assert_eq!(tokens.len(), 8.min(20 - answered));
        assert_eq!(server.unanswered() as usize, tokens.len());
        assert_eq!(server.wants_input(), answered + tokens.len() == 20);
        answered += tokens.len();
        tokens.into_iter().for_each(|token| server.complete_read(token, |_| Ok(())));
        down(&mut server, &mut client);
    }
    assert_eq!(replies(&mut client), 20);
    assert!(server.wants_input());
}

#[test]
fn replies_that_are_owed_count_as_queued() {
    let (mut client, mut server) = pair(Limits::default(), limits());
    for _ in 0..6 {
        client.region_read(read(1000)).unwrap();
    }
    up(&mut client, &mut server);
    let mut answered = 0;
    while answered < 6 {
        let tokens = taken(&mut server);
        assert_eq!(tokens.len(), 2, "two replies of 1000 bytes fill a queue of 2000");
        answered += tokens.len();
        tokens.into_iter().for_each(|token| server.complete_read(token, |_| Ok(())));
        assert!(server.queued_bytes() < 2000 + 1100);
        assert!(taken(&mut server).is_empty(), "nothing is taken before they are sent");
        down(&mut server, &mut client);
    }
    assert_eq!(replies(&mut client), 6);
}

#[test]
fn a_client_that_does_not_read_is_not_listened_to() {
    let (mut client, mut server) = pair(Limits::default(), limits());
    for _ in 0..2 {
        client.region_read(read(1000)).unwrap();
    }
    up(&mut client, &mut server);
    taken(&mut server).into_iter().for_each(|token| server.complete_read(token, |_| Ok(())));
    assert!(server.queued_bytes() > 2000);
    // Nothing has been read that could not be taken; but nothing more is read either.
    assert!(!server.wants_input() && !server.has_work());
    down(&mut server, &mut client);
    assert!(server.wants_input());
}

#[test]
fn a_client_takes_no_more_dma_than_may_wait() {
    let (mut client, mut server) = pair(limits(), Limits::default());
    let map = MapRequest { address: 0, size: 0x1000, readable: true, writable: true, offset: 0 };
    client.dma_map(&map, None).unwrap();
    up(&mut client, &mut server);
    let Ok(Some(Event::DmaMap { token, .. })) = server.poll() else { panic!("a map") };
    server.complete(token, Ok(()));
    down(&mut server, &mut client);
    assert!(matches!(client.poll(), Ok(Some(ClientEvent::Reply { reply: Ok(_), .. }))));
    for _ in 0..6 {
        server.bus().dma_read(0, 1000).unwrap();
    }
    down(&mut server, &mut client);
    let mut answered = 0;
    while answered < 6 {
        let mut tokens = Vec::new();
        while let Some(event) = client.poll().unwrap() {
            let ClientEvent::DmaRead { token, .. } = event else { panic!("{event:?}") };
            tokens.push(token);
        }
        assert_eq!(tokens.len(), 2);
        answered += tokens.len();
        tokens.into_iter().for_each(|token| client.complete(token, |_| Ok(())));
        up(&mut client, &mut server);
    }
    for _ in 0..6 {
        assert!(matches!(server.poll(), Ok(Some(Event::DmaDone { result: Ok(_), .. }))));
    }
}

#[test]
fn requests_of_one_s_own_are_bounded() {
    let (mut client, mut server) = pair(limits(), limits());
    for _ in 0..8 {
        client.region_read(read(4)).unwrap();
    }
    let full = Err(RequestError::TooManyOutstanding { limit: 8 });
    assert_eq!(client.region_read(read(4)), full);
    up(&mut client, &mut server);
    let data = [0; 1500];
    client.region_write_posted(region::BAR0, 0, &data).unwrap();
    let queued = client.queued_bytes();
    let refused = client.region_write_posted(region::BAR0, 0, &data);
    assert_eq!(refused, Err(RequestError::QueueFull { queued }));
    let large = vec![0; (1 << 20) + 1];
    let limit = 1 << 20;
    let refused = client.region_write_posted(region::BAR0, 0, &large);
    assert_eq!(refused, Err(RequestError::TooLarge { count: large.len(), limit }));
    let refused = server.bus().dma_read(0x5000, 16);
    assert_eq!(refused, Err(RequestError::NotMapped { address: 0x5000, count: 16 }));
    let mut fresh = Client::new(limits());
    assert_eq!(fresh.reset(), Err(RequestError::NotReady));
}

#[test]
fn input_that_is_not_polled_is_bounded() {
    let limits = Limits { max_data_xfer_size: 4096, ..limits() };
    let (_, mut server) = pair(Limits::default(), limits);
    let most = 2 * limits.max_message_bytes() as usize;
    let mut given = 0;
    let error = loop {
        assert!(given <= most);
        server.space().fill(0);
        match server.received(1000, Vec::new()) {
            Ok(()) => given += 1000,
            Err(error) => break error,
        }
    };
    assert_eq!(error, ProtocolError::InputOverrun { buffered: given + 1000, limit: most });
    assert!(!server.wants_input());
    assert_eq!(server.poll().err(), Some(error));
}

#[test]
fn a_description_that_breaks_a_limit_is_refused() {
    let many = DeviceInfo::pci().region(64, Region::read_write(1));
    assert!(matches!(Server::new(many, limits()), Err(RequestError::Invalid { .. })));
}

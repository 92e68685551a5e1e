//! A daemon that is attacked: it lends nothing, listens to nobody, and is asked by calling its services.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::Daemon;
use super::listener::CallerHost;
use super::machine::ThisMachine;
use super::peers::PeersService;
use crate::home::Home;
use crate::proto::peers_server::Peers;
use crate::proto::{BorrowRequest, JoinRequest, ListRequest, RenewRequest, ReturnRequest};

/// A call of a peer.
pub(crate) enum Asked {
    Join(JoinRequest),
    List(ListRequest),
    Borrow(BorrowRequest),
    Renew(RenewRequest),
    Return(ReturnRequest),
}

/// How long a call may take that is never right: nothing is lent, so nobody waits.
const LIMIT: Duration = Duration::from_secs(5);

struct Victim {
    runtime: Runtime,
    service: PeersService,
    folder: PathBuf,
}

impl Victim {
    fn new() -> Victim {
        let name =
            format!("farside-attacked-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name);
        let home = Home::at(&folder);
        home.make().expect("folders");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let daemon = runtime
            .block_on(async { Daemon::new(&home, Arc::new(ThisMachine)) })
            .expect("a daemon");
        Victim { runtime, service: PeersService(daemon), folder }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

thread_local! {
    static VICTIM: Victim = Victim::new();
}

/// Asks, as host `b`; says whether it did well.
///
/// # Panics
/// It is not answered in time.
pub(crate) fn ask(asked: Asked) -> bool {
    VICTIM.with(|victim| {
        let service = &victim.service;
        let answered = async {
            match asked {
                Asked::Join(join) => well(service.join(by_b(join)).await),
                Asked::List(list) => well(service.list(by_b(list)).await),
                Asked::Borrow(borrow) => well(service.borrow(by_b(borrow)).await),
                Asked::Renew(renew) => well(service.renew(by_b(renew)).await),
                Asked::Return(back) => well(service.r#return(by_b(back)).await),
            }
        };
        let answered = victim.runtime.block_on(async { timeout(LIMIT, answered).await });
        let lent = service.0.lending.devices();
        assert!(lent.is_empty(), "{lent:?}");
        assert!(Arc::strong_count(&service.0) < 100, "calls are forgotten when they are over");
        answered.expect("whatever is asked is answered")
    })
}

fn by_b<T>(asked: T) -> Request<T> {
    let mut request = Request::new(asked);
    request.extensions_mut().insert(CallerHost {
        host: Some("b".to_owned()),
        way: None,
        _place: None,
    });
    request
}

fn well<T>(answered: Result<Response<T>, Status>) -> bool {
    answered.is_ok()
}

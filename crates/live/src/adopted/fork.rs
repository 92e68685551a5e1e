//! Forks: a child has a copy of the program's private memory, and nobody who would bring it a page. So
//! all adopted memory is at home while the program forks.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::{Duration, Instant};

use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;

use super::Watch;
use crate::runtime::Runtime;

/// How long a fork waits for pages that kernels take away again and again.
const PATIENCE: Duration = Duration::from_secs(5);

/// The runtimes of this process that have adopted memory.
static RUNTIMES: Mutex<Vec<Weak<Runtime>>> = Mutex::new(Vec::new());

thread_local! {
    /// Those of which this thread, which forks, lets no page leave.
    static STOPPED: RefCell<Vec<Arc<Watch>>> = const { RefCell::new(Vec::new()) };
}

/// Has the memory of a runtime be at home whenever the program forks. Twice is as once.
pub(crate) fn enter(runtime: &Arc<Runtime>) {
    static HANDLERS: Once = Once::new();
    // SAFETY: the handlers take no argument, and this library is not unloaded (it has threads).
    HANDLERS.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    });
    let mut runtimes = lock(&RUNTIMES);
    runtimes.retain(|known| known.strong_count() > 0);
    if !runtimes.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(runtime))) {
        runtimes.push(Arc::downgrade(runtime));
    }
}

extern "C" fn before() {
    let runtimes: Vec<Arc<Runtime>> = lock(&RUNTIMES).iter().filter_map(Weak::upgrade).collect();
    for runtime in runtimes.iter().filter(|runtime| runtime.check_process().is_ok()) {
        let Some(watch) = runtime.memories.adopted.watching().cloned() else { continue };
        let _signals = BlockedSignals::block();
        let began = Instant::now();
        loop {
            runtime.bring_adopted_home();
            watch.departures.stop();
            let away = runtime.memories.adopted.programs();
            if away.iter().all(|region| region.away().next().is_none()) {
                break;
            }
            if began.elapsed() > PATIENCE {
                eprintln!(
                    "farside: this program forks while kernels use its adopted memory: the child gets zeros \
                     for what they have"
                );
                break;
            }
            resume(&watch);
            std::thread::sleep(Duration::from_micros(200));
        }
        watch.let_fault_beside_a_fork();
        STOPPED.with_borrow_mut(|stopped| stopped.push(watch));
    }
}

extern "C" fn in_parent() {
    STOPPED.take().iter().for_each(|watch| resume(watch));
}

fn resume(watch: &Watch) {
    watch.departures.resume();
    // The reader goes on with what has not begun meanwhile.
    watch.ring();
}

extern "C" fn in_child() {
    // Nobody else is there; what is the parent's is left alone.
    STOPPED.take().into_iter().for_each(std::mem::forget);
}

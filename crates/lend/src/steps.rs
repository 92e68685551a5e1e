//! The steps in the life of a lease, by name: at each a process may be killed, stopped or cut off, and
//! nothing is held twice. `crates/cli/tests/lend_faults` does that to every process at every step.
//!
//! Every process says each at the level `trace`. Where the feature `steps` is compiled in, which only tests
//! ask for, it also waits there for as long as a page in the folder of its host says so.

/// Declares the steps with their names.
macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident = $name:literal;)*) => {
        /// A step.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Step { $($(#[$doc])* $step,)* }

        impl Step {
            /// All of them, in the order of a life.
            pub const ALL: &'static [Step] = &[$(Step::$step,)*];

            /// Its name, for people.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Step::$step => $name,)* }
            }
        }
    };
}

steps! {
    /// The lender's daemon has certified a host, which does not know yet.
    Joining = "joining";
    /// The lender's daemon has heard what is wanted.
    Asked = "asked";
    /// The lender's ledger has been written: a grant, or an end.
    LedgerWritten = "ledger written";
    /// The lender's end of a lease runs, and nobody was told.
    EndStarted = "end started";
    /// The lender's end is confined, and has no connection.
    EndReady = "end ready";
    /// The lender's daemon has told the borrower.
    GrantSent = "grant sent";
    /// The borrower's daemon has heard of its leases, and has made nothing of them.
    GrantHeard = "grant heard";
    /// The folder of a lease and the borrower's end are there, and no program was told.
    NearEndStarted = "near end started";
    /// The borrower's end is confined, and has no program.
    NearEndReady = "near end ready";
    /// A program has come to the borrower's end.
    ProgramConnects = "program connects";
    /// The lender's daemon has led a connection to its end.
    ConnectionLed = "connection led";
    /// The lender's end has a connection, whose certificate it has not seen.
    ConnectionTaken = "connection taken";
    /// The borrower's daemon is about to renew.
    RenewalAsked = "renewal asked";
    /// The lender's daemon has heard that.
    RenewalHeard = "renewal heard";
    /// The lender's daemon wants a device back.
    Recalled = "recalled";
    /// The lender's daemon has heard that leases are given back.
    ReturnHeard = "return heard";
    /// A lease is over, and its end still runs.
    Fencing = "fencing";
    /// The end is gone, with its connections and windows; the device is not clean.
    LinkCut = "link cut";
    /// Jobs have stopped and memory is new, and the lender's daemon does not know.
    DeviceClean = "device clean";
    /// The device may be lent again.
    Lendable = "lendable";
}

/// A process that may be held begins: before it is confined.
pub(crate) fn begin() {
    #[cfg(feature = "steps")]
    held::begin();
}

/// A process is at a step.
pub(crate) fn at(step: Step) {
    tracing::trace!(step = step.name(), "a step");
    #[cfg(feature = "steps")]
    held::at(step);
}

/// Holding processes, for tests.
#[cfg(feature = "steps")]
pub mod held {
    use std::fs::File;
    use std::path::Path;
    use std::sync::OnceLock;
    use std::time::Duration;

    use farside_linux::shared::SharedMemory;

    use super::Step;
    use crate::home::HOME_VARIABLE;

    /// The page's name in the folder of a host.
    pub const FILE: &str = "steps";
    /// Its bytes: a word for each step.
    pub const BYTES: u64 = 4096;
    /// Who comes there waits.
    pub const HOLD: u32 = 1;
    /// Somebody waits there, until it is something else.
    pub const HELD: u32 = 2;

    static PAGE: OnceLock<Option<SharedMemory>> = OnceLock::new();

    /// The page of a host.
    ///
    /// # Errors
    /// It is not there, or cannot be mapped.
    pub fn page(home: &Path) -> std::io::Result<SharedMemory> {
        let file = File::options().read(true).write(true).open(home.join(FILE))?;
        SharedMemory::of_file(file.into(), 0, BYTES).map_err(std::io::Error::other)
    }

    fn own() -> Option<&'static SharedMemory> {
        let find = || page(Path::new(&std::env::var_os(HOME_VARIABLE)?)).ok();
        PAGE.get_or_init(find).as_ref()
    }

    pub(super) fn begin() {
        own();
    }

    pub(super) fn at(step: Step) {
        let Some(page) = own() else { return };
        let at = step as u64 * 4;
        if page.load(at) != Some(HOLD) {
            return;
        }
        page.store(at, HELD);
        while page.load(at) == Some(HELD) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

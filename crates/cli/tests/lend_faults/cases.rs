//! What can happen: to which process, at which step of a lease.

use farside_lend::steps::Step;

use crate::network::Way;

/// Where in the life of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// A process is held there.
    Held(Step),
    /// The program is at work on the card: launches, and pages in flight.
    InUse,
}

/// To whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    LendersDaemon,
    LendersEnd,
    Card,
    BorrowersDaemon,
    NearEnd,
    /// What the user runs: `farside borrow` and the program.
    Program,
}

/// What.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Killed, and gone for longer than the lease.
    Kill(Target),
    /// Killed, and started again at once where somebody starts it.
    Restart(Target),
    /// Stopped for longer than the lease, and woken.
    Pause(Target),
    /// Packets are lost for longer than the lease.
    Cut(Way),
    /// For a second and a half little arrives.
    Slow,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    pub(crate) moment: Moment,
    pub(crate) fault: Fault,
}

const TARGETS: [Target; 6] = [
    Target::LendersDaemon,
    Target::LendersEnd,
    Target::Card,
    Target::BorrowersDaemon,
    Target::NearEnd,
    Target::Program,
];

impl Case {
    /// All of them.
    pub(crate) fn all() -> Vec<Case> {
        let held = Step::ALL.iter().map(|&step| Moment::Held(step));
        let moments = held.chain([Moment::InUse]);
        let faults: Vec<Fault> = faults().collect();
        let cases = moments.flat_map(|moment| {
            faults.iter().map(move |&fault| Case { moment, fault }).collect::<Vec<_>>()
        });
        cases.filter(Case::is_possible).collect()
    }

    /// Whether there is such a process then.
    fn is_possible(&self) -> bool {
        use Step::{Asked, ConnectionLed, ConnectionTaken, Joining, NearEndReady, NearEndStarted};
        let Moment::Held(step) = self.moment else { return true };
        let target = match self.fault {
            Fault::Kill(target) | Fault::Restart(target) | Fault::Pause(target) => target,
            Fault::Cut(_) | Fault::Slow => return true,
        };
        match target {
            // Nothing of a lease is there yet.
            _ if step == Joining => {
                matches!(target, Target::LendersDaemon | Target::BorrowersDaemon)
            }
            Target::LendersEnd => {
                !matches!(step, Asked | Step::LedgerWritten | Step::LinkCut)
                    && !matches!(step, Step::DeviceClean | Step::Lendable)
            }
            Target::NearEnd => matches!(
                step,
                NearEndStarted
                    | NearEndReady
                    | Step::ProgramConnects
                    | ConnectionLed
                    | ConnectionTaken
                    | Step::RenewalAsked
                    | Step::RenewalHeard
                    | Step::Recalled
            ),
            Target::Program => !matches!(
                step,
                Step::ReturnHeard
                    | Step::Fencing
                    | Step::LinkCut
                    | Step::DeviceClean
                    | Step::Lendable
            ),
            Target::BorrowersDaemon | Target::LendersDaemon | Target::Card => true,
        }
    }

    /// Whether somebody else's lease of the same lender goes on.
    pub(crate) fn spares_others(&self) -> bool {
        // Whoever cannot renew loses its lease.
        let lenders = |fault| {
            matches!(
                fault,
                Fault::Kill(Target::LendersDaemon) | Fault::Pause(Target::LendersDaemon)
            )
        };
        !lenders(self.fault)
    }
}

fn faults() -> impl Iterator<Item = Fault> {
    let kill = TARGETS.into_iter().map(Fault::Kill);
    let pause = TARGETS.into_iter().map(Fault::Pause);
    let restart = [Target::LendersDaemon, Target::Card, Target::BorrowersDaemon];
    let restart = restart.into_iter().map(Fault::Restart);
    let cut = [Way::Both, Way::ToLender, Way::ToBorrower].into_iter().map(Fault::Cut);
    kill.chain(pause).chain(restart).chain(cut).chain([Fault::Slow])
}

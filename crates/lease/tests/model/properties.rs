//! What must hold in every state of the model.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

use farside_lease::lender::{Action, Event, FenceOutcome, Lender, Status};
use farside_lease::{BootTime, BorrowerId, DeviceSet, RequestId};
use stateright::Property;

use super::common::{devices, host};
use super::machine::{LENDER_TICK, Leasing, State};

pub(crate) const ONE_HOLDER: &str = "never two that believe they hold the device";
pub(crate) const OLD_EPOCHS_ARE_OUT: &str = "a grant lets nobody of an older epoch in";
pub(crate) const EPOCHS_ARE_NEW: &str = "no epoch is told twice";
pub(crate) const GRANTED_ONCE: &str = "no request is granted twice";
pub(crate) const ALL_OR_NONE: &str = "what is asked for together is granted together";
const CURRENT_ONLY: &str = "who believes in a lease has the one that the lender knows";
pub(crate) const LENDABLE: &str = "the devices are lendable again in time";

/// Lenders whose future was looked at already.
pub(crate) type LookedAt = Mutex<HashSet<u64>>;

pub(crate) fn all() -> Vec<Property<Leasing>> {
    vec![
        Property::always(ONE_HOLDER, |_, state: &State| {
            let held = (0..state.hosts.len()).flat_map(|who| state.believed(who));
            let mut devices = HashSet::new();
            held.into_iter().all(|lease| devices.insert(&lease.device))
        }),
        Property::always(OLD_EPOCHS_ARE_OUT, |_, state: &State| !state.history.old_let_in),
        Property::always(EPOCHS_ARE_NEW, |_, state: &State| !state.history.epoch_repeated),
        Property::always(GRANTED_ONCE, |_, state: &State| !state.history.granted_twice),
        Property::always(ALL_OR_NONE, |_, state: &State| !state.history.granted_in_part),
        Property::always(CURRENT_ONLY, |_, state: &State| {
            (0..state.hosts.len()).flat_map(|who| state.believed(who)).all(|lease| {
                state.lender.lease(&lease.device).is_none_or(|held| held.id.epoch == lease.epoch)
            })
        }),
        Property::always(LENDABLE, is_lendable_again),
        Property::sometimes("all have had what they want", |_, state: &State| {
            let hosts: HashSet<_> = state.history.told.values().map(|told| &told.to).collect();
            hosts.len() == state.hosts.len()
        }),
        Property::sometimes("a lease is renewed", |_, state: &State| state.history.renewed),
    ]
}

/// Whether another host gets all devices soon if nobody else says anything from now on: after what is
/// granted and what waits has run out, each after one duration.
fn is_lendable_again(model: &Leasing, state: &State) -> bool {
    let mut hasher = DefaultHasher::new();
    (&state.lender, &state.storing, &state.fencing).hash(&mut hasher);
    if !model.looked_at.lock().expect("nobody panics").insert(hasher.finish()) {
        return true;
    }
    let mut future = Future { lender: state.lender.clone(), now: state.lenders_now() };
    if let Some(storing) = &state.storing {
        future.handle(Event::Stored { write: storing.write });
    }
    for (device, fence) in state.fencing.clone() {
        let outcome = FenceOutcome::Clean { generation: 1 };
        future.handle(Event::Fenced { fence, device, outcome });
    }
    for device in model.device_names() {
        future.handle(Event::DeviceAdded { device });
    }
    // What runs or may be believed in, then each that waits: four ticks each.
    for _ in 0..4 * (1 + future.lender.waiting()) {
        future.now.0 += LENDER_TICK;
        future.handle(Event::Tick);
    }
    let is_free = future.lender.devices().all(|device| device.status == Status::Free);
    is_free && future.grants_to_another(devices(model.devices))
}

/// A lender alone with a disk and a device that work.
struct Future {
    lender: Lender,
    now: BootTime,
}

impl Future {
    fn handle(&mut self, event: Event) -> bool {
        let mut granted = false;
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.lender.handle(self.now, event);
            while let Some(action) = self.lender.poll_action() {
                match action {
                    Action::Store { write, .. } => events.push(Event::Stored { write }),
                    Action::Fence { fence, device, .. } => {
                        let outcome = FenceOutcome::Clean { generation: 1 };
                        events.push(Event::Fenced { fence, device, outcome });
                    }
                    Action::Granted { .. } => granted = true,
                    _ => {}
                }
            }
        }
        granted
    }

    fn grants_to_another(&mut self, devices: DeviceSet) -> bool {
        self.handle(Event::Borrow {
            request: RequestId(1),
            borrower: BorrowerId { host: host("z"), user: None },
            devices,
            duration: None,
            wait: Duration::ZERO,
        })
    }
}

//! Chains of a request end, well or not, and so does the request.

use farside_types::{PageNo, PageRange, RequestId};

use crate::Driver;
use crate::api::command::Run;
use crate::api::reply::{Outcome, RequestError};
use crate::api::requests::{OpenRequest, RequestKind};
use crate::migration::chains::ChainId;
use crate::migration::transition::Fill;
use crate::mutation::Mutation;
use crate::tables::page::{PageState, flag};
use crate::waiting::{Until, Work};

impl Driver {
    /// A chain of a request has ended well.
    pub(crate) fn request_progress(&mut self, id: RequestId, chain: ChainId) {
        let parts = &self.chains[chain].parts;
        let moved: u64 = parts
            .iter()
            .filter(|part| part.transition.fill != Fill::Nothing)
            .map(|part| u64::from(part.pages))
            .sum();
        let runs: Vec<PageRange> =
            parts.iter().flat_map(|part| part.runs.iter().map(Run::pages)).collect();
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.chains -= 1;
        request.pages_moved += moved;
        let kind = request.kind;
        for range in runs {
            self.mark_pin(kind, range);
        }
        self.finish_request(id);
    }

    /// A chain of a request, or the request itself, has failed.
    pub(crate) fn request_failed(&mut self, id: RequestId, error: RequestError) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.error.get_or_insert(error);
        request.left.clear();
        self.finish_request(id);
    }

    /// The chain of a request was rolled back.
    pub(crate) fn request_rolled_back(
        &mut self,
        id: RequestId,
        chain: ChainId,
        error: RequestError,
    ) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.chains -= 1;
        request.attempts = request.attempts.saturating_add(1);
        let again =
            matches!(request.kind, RequestKind::Free | RequestKind::Disown | RequestKind::Protect);
        let spent = request.attempts >= self.config.limits.attempts;
        if again && (!spent || self.mutated.on(Mutation::RetryForever)) {
            let parts = self.chains[chain].parts.iter();
            request.left.extend(parts.flat_map(|part| part.runs.iter().map(Run::pages)));
            return self.work.push_back(Work::Request(id));
        }
        self.request_failed(id, error);
    }

    /// Whether adopted memory cannot be given back yet, because a page of it that was home already is under way again: the program
    /// goes on with it, and faults. Then the request goes on with that page.
    fn goes_on(&mut self, id: RequestId) -> bool {
        let table = &self.table;
        let busy = |page: &PageNo| table.get(*page).state == PageState::Moving;
        let gives_back = |request: &&mut OpenRequest| {
            request.kind == RequestKind::Disown && request.error.is_none()
        };
        let Some(request) = self.requests.get_mut(&id).filter(gives_back) else { return false };
        let Some(page) = request.whole.pages().find(busy) else { return false };
        request.left.push_back(PageRange::page(page));
        self.work.push_back(Work::Request(id));
        true
    }

    /// Answers a request when nothing of it is left.
    pub(crate) fn finish_request(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if request.chains > 0 || !request.left.is_empty() || self.goes_on(id) {
            return;
        }
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        if request.destination().is_some() {
            self.wake_for_room();
        }
        let OpenRequest { kind, whole, pages_moved, error, .. } = request;
        match (kind, error) {
            (RequestKind::Free, None) => {
                self.remove_object(whole);
                self.reply_done(id, 0);
            }
            (RequestKind::Disown, None) => {
                self.disowned(whole, true);
                self.reply_done(id, pages_moved);
            }
            (RequestKind::Disown, Some(error)) => {
                self.disowned(whole, false);
                self.reply(id, Err(error));
            }
            (RequestKind::Alloc, None) => {
                self.table.update(whole, |entry| entry.set(flag::DOOMED, false));
                self.wake(Until::Poisoned);
                self.reply(id, Ok(Outcome::Allocated(whole)));
            }
            (RequestKind::Alloc, Some(error)) => {
                self.remove_object(whole);
                self.wake(Until::Poisoned);
                self.reply(id, Err(error));
            }
            (RequestKind::Pin(at), Some(error)) => {
                if let Some(pin) = self.open_pin(whole, at) {
                    self.pins.remove(pin);
                }
                self.unmark_pins(whole);
                self.reply(id, Err(error));
            }
            (RequestKind::Pin(at), None) => {
                if let Some(pin) = self.open_pin(whole, at) {
                    self.pins[pin].ready = true;
                }
                self.reply_done(id, pages_moved);
            }
            (_, Some(error)) => self.reply(id, Err(error)),
            (_, None) => self.reply_done(id, pages_moved),
        }
    }
}

//! Reads events in their order and hands each to what is counted.

use farside_events::{About, Event, Kind, Names, Reader};
use farside_types::{AgentId, MemoryId, Reason};

use crate::facts::{AllocationFacts, Facts, HeatFacts, HeatRow, LogFacts, RangeFacts, Totals};
use crate::heat::{Heat, Rows};
use crate::kernels::Kernels;
use crate::objects::{Object, Objects, Part, Words};
use crate::page_state::{Came, PageState, Pages};
use crate::rules::{self, Lent, Seen};
use crate::series::{Bins, Sums};

/// Allocations that are listed.
const LISTED: usize = 200;
/// Rows of the picture.
const SHOWN_ROWS: usize = 256;
/// Ranges whose history is told.
const RANGES: usize = 12;

/// See the module.
pub(crate) struct Gather {
    about: About,
    words: Words,
    end: u64,
    objects: Objects,
    heat: Heat,
    /// Faults and moves of each row, for the ranges that cost most.
    row_costs: Vec<(u64, u64)>,
    sums: Sums,
    kernels: Kernels,
    lent: Lent,
    totals: Totals,
    dropped: u64,
    /// Pages that left each card since others came to it last: their allocations.
    leaving: Vec<Vec<(usize, u64)>>,
}

impl Gather {
    pub(crate) fn new(about: &About, end: u64) -> Gather {
        let bins = Bins::new(end);
        Gather {
            about: about.clone(),
            words: Words::new(about),
            end,
            objects: Objects::new(about.page_bytes),
            heat: Heat::new(bins, about.memories.len()),
            row_costs: Vec::new(),
            sums: Sums::new(bins),
            kernels: Kernels::new(end),
            lent: Lent::default(),
            totals: Totals::default(),
            dropped: 0,
            leaving: vec![Vec::new(); about.memories.len()],
        }
    }

    /// Takes the next events.
    pub(crate) fn take(&mut self, events: &[Event], names: &Names) {
        events.iter().for_each(|event| self.take_one(event, names));
    }

    fn take_one(&mut self, event: &Event, names: &Names) {
        match event.kind {
            Kind::FaultRead | Kind::FaultWrite => self.fault(event),
            Kind::Refill => {
                self.totals.refills += 1;
                event.agent.into_iter().for_each(|agent| self.sums.refill(agent));
            }
            kind if kind.is_change() => self.change(event),
            Kind::Alloc => {
                self.totals.allocations += 1;
                self.objects.alloc(event, names, &mut self.heat);
            }
            Kind::Free => self.free(event),
            kind if kind.is_hint() => self.hint(event),
            Kind::LentRead | Kind::LentWrite => self.lend(event),
            Kind::Launch | Kind::Begin | Kind::End | Kind::Failed => self.job(event, names),
            Kind::Dropped => self.dropped += event.number,
            _ => self.tell(event),
        }
    }

    fn fault(&mut self, event: &Event) {
        let Some(agent) = event.agent else { return };
        self.totals.faults += 1;
        self.sums.fault(event, agent, event.kind == Kind::FaultWrite);
        self.kernels.fault(agent);
        let mut parts = self.objects.parts(event);
        while let Some(part) = parts.next(&mut self.objects) {
            self.objects.list[part.object].faults += 1;
            if let Some(row) = self.objects.list[part.object].rows.of(part.first) {
                self.cost(row).0 += 1;
                self.objects.stories.entry(row).or_default().add(event);
            }
        }
    }

    /// Its pages are nowhere from now on; what the driver notes of their leaving comes later, and is of nobody.
    fn free(&mut self, event: &Event) {
        self.tell(event);
        if let Some((number, pages)) = self.objects.free(event.address) {
            settle(&mut self.heat, self.objects.list[number].rows, &pages, event.at);
        }
    }

    fn job(&mut self, event: &Event, names: &Names) {
        match event.kind {
            Kind::Launch => self.lent.launch(event),
            Kind::End | Kind::Failed => {
                self.lent.end(event.number);
                self.totals.kernels += 1;
                self.totals.kernels_failed += u64::from(event.kind == Kind::Failed);
            }
            _ => {}
        }
        self.kernels.take(event, names);
    }

    fn lend(&mut self, event: &Event) {
        let Some(agent) = self.lent.lend(event) else { return };
        let mut parts = self.objects.parts(event);
        while let Some(part) = parts.next(&mut self.objects) {
            let object = &mut self.objects.list[part.object];
            object.used_on = object.used_on.with(agent);
        }
    }

    fn hint(&mut self, event: &Event) {
        self.totals.hints += 1;
        let mut parts = self.objects.parts(event);
        while let Some(part) = parts.next(&mut self.objects) {
            let object = &mut self.objects.list[part.object];
            match event.kind {
                Kind::ReadMostly => object.read_mostly = true,
                Kind::NotReadMostly => object.read_mostly = false,
                _ => {}
            }
            if let Some(to) = event.to {
                object.used_on = object.used_on.without(to.agent());
            }
        }
        self.tell(event);
    }

    /// Enters an event into the history of its ranges.
    fn tell(&mut self, event: &Event) {
        let mut parts = self.objects.parts(event);
        while let Some(part) = parts.next(&mut self.objects) {
            self.tell_part(event, part);
        }
    }

    fn tell_part(&mut self, event: &Event, part: Part) {
        let rows = self.objects.list[part.object].rows;
        let (first, last) = (rows.of(part.first), rows.of(part.first + part.pages.max(1) - 1));
        if let (Some(first), Some(last)) = (first, last) {
            for row in first..=last {
                self.objects.stories.entry(row).or_default().add(event);
            }
        }
    }

    fn cost(&mut self, row: usize) -> &mut (u64, u64) {
        if row >= self.row_costs.len() {
            self.row_costs.resize(row + 1, (0, 0));
        }
        &mut self.row_costs[row]
    }

    /// Pages are in other places, or others may use them.
    fn change(&mut self, event: &Event) {
        let pages = event.bytes / self.about.page_bytes;
        self.totals.pages_stopped += pages * u64::from(event.stopped.len());
        if event.kind == Kind::RemoteMap {
            self.totals.pages_mapped_afar += pages;
        }
        if let Some(to) = event.to {
            self.sums.came(event, to, self.about.page_bytes);
            self.kernels.moved(to.agent(), pages);
            self.totals.pages_moved += pages;
            self.totals.pages_copied += if event.from.is_some() { pages } else { 0 };
        }
        let mut parts = self.objects.parts(event);
        while let Some(part) = parts.next(&mut self.objects) {
            self.change_part(event, part);
        }
    }

    fn change_part(&mut self, event: &Event, part: Part) {
        let step = Step::of(event);
        if let Some(to) = event.to {
            self.arrive(event, part, to, step);
        }
        if event.kind == Kind::Eviction {
            self.evict(event, part);
        }
        let rows = self.objects.list[part.object].rows;
        let followed = (part.first + part.pages).min(self.objects.list[part.object].followed);
        self.totals.pages_not_followed +=
            (part.first + part.pages).saturating_sub(followed.max(part.first));
        for page in part.first..followed {
            let row = rows.of(page);
            let state = *self.objects.list[part.object].states.at(page);
            if let Some(row) = row {
                self.heat.stayed(row, state.copies, state.since, event.at);
                if event.to.is_some() {
                    self.heat.moved(row, event.at);
                    self.cost(row).1 += 1;
                }
            }
            let after = self.follow(event, part.object, page, state, step);
            *self.objects.list[part.object].states.at(page) = after;
        }
        self.tell_part(event, part);
    }

    /// What becomes of one page, and what that says.
    fn follow(
        &mut self,
        event: &Event,
        number: usize,
        page: u64,
        mut state: PageState,
        step: Step,
    ) -> PageState {
        let object = &mut self.objects.list[number];
        if let Some((loser, taker)) = taken(event, step) {
            match state.came {
                Came::Fetched => {
                    object.handed += 1;
                    self.totals.pages_handed += 1;
                    *object.takers.entry((loser, taker)).or_default() += 1;
                    let bytes = self.about.page_bytes;
                    if let Some(example) =
                        self.lent.apart(object.address, page, bytes, loser, taker)
                    {
                        object.apart += 1;
                        object.example.get_or_insert(example);
                    }
                }
                Came::Hinted(at) if at.agent() == loser && !object.used_on.contains(loser) => {
                    *object.wasted.entry((at, taker.home())).or_default() += 1;
                }
                _ => {}
            }
        }
        if event.kind == Kind::Collapse && object.read_mostly {
            object.collapsed += 1;
        }
        if event.to.is_some_and(|to| state.comes_back(to)) {
            object.returned += 1;
            self.totals.pages_returned += 1;
        }
        match (step, event.to) {
            (Step::Fetch, _) => state.came = Came::Fetched,
            (Step::Hint, Some(to)) => {
                object.hinted += 1;
                state.came = Came::Hinted(to);
            }
            (Step::Other, _) if event.kind != Kind::Rights => state.came = Came::Otherwise,
            _ => {}
        }
        if event.kind == Kind::Eviction {
            event.before.minus(event.after).iter().for_each(|memory| state.leave(memory));
        }
        if state.copies != event.after {
            (state.copies, state.since) = (event.after, event.at);
        }
        state
    }

    /// Pages of an allocation came.
    fn arrive(&mut self, event: &Event, part: Part, to: MemoryId, step: Step) {
        let object = &mut self.objects.list[part.object];
        object.moved += part.pages;
        if to.is_host() {
            return;
        }
        if step == Step::Fetch && event.from.is_some() {
            object.steps.entry(to.agent()).or_default().fetch(part.first, part.pages);
        }
        self.objects.on_card(part.object);
        let leaving = self.leaving.get_mut(usize::from(to.0)).map(std::mem::take);
        for (victim, pages) in leaving.unwrap_or_default() {
            *self.objects.list[victim].pushed_out_by.entry(part.object).or_default() += pages;
        }
    }

    /// Pages of an allocation made room.
    fn evict(&mut self, event: &Event, part: Part) {
        self.objects.list[part.object].evicted += part.pages;
        self.totals.pages_evicted += part.pages;
        for memory in event.before.minus(event.after).iter() {
            let Some(leaving) = self.leaving.get_mut(usize::from(memory.0)) else { continue };
            match leaving.last_mut().filter(|(object, _)| *object == part.object) {
                Some((_, pages)) => *pages += part.pages,
                None => leaving.push((part.object, part.pages)),
            }
        }
    }

    /// What all of it says.
    pub(crate) fn finish(mut self, reader: &Reader) -> Facts {
        self.settle();
        let card_bytes = self.about.memories.iter().skip(1).filter_map(|it| it.bytes).min();
        let seen = Seen {
            objects: &self.objects.list,
            words: &self.words,
            page_bytes: self.about.page_bytes,
            card_bytes,
            on_cards_most: self.objects.on_cards_most,
        };
        let remedies = rules::remedies(&seen);
        let mut order: Vec<usize> = (0..self.objects.list.len()).collect();
        order.sort_by_key(|&it| std::cmp::Reverse(cost(&self.objects.list[it])));
        let heat = self.heat_facts(&order);
        let ranges = self.ranges();
        let listed = order.iter().take(LISTED).map(|&it| allocation(&self.objects.list[it]));
        let allocations = listed.collect();
        let (kernels, runs) = std::mem::take(&mut self.kernels).finish(self.end);
        Facts {
            log: LogFacts {
                program: self.about.program.clone(),
                machine: self.about.machine.clone(),
                scheme: self.about.scheme.clone(),
                page_bytes: self.about.page_bytes,
                memories: self.about.memories.clone(),
                events: reader.events(),
                dropped: self.dropped,
                cut: reader.cut().map(|cut| cut.left_out),
                end: self.end,
            },
            totals: self.totals,
            remedies,
            moves: self.sums.moves(),
            faults: self.sums.faults(),
            allocations,
            allocations_left_out: self.objects.list.len().saturating_sub(LISTED) as u64,
            kernels,
            ranges,
            series: self.sums.series(&self.words),
            heat,
            runs,
        }
    }

    /// Every page stays where it is until the end.
    fn settle(&mut self) {
        for object in &self.objects.list {
            settle(&mut self.heat, object.rows, &object.states, self.end);
        }
    }

    /// The picture: the allocations that cost most, by address.
    fn heat_facts(&self, order: &[usize]) -> HeatFacts {
        let list = &self.objects.list;
        let mut shown = Vec::new();
        let (mut rows, mut left_out) = (0, 0);
        for &number in order {
            let count = list[number].rows.count;
            match count > 0 && rows + count <= SHOWN_ROWS {
                true => shown.push(number),
                false => left_out += 1,
            }
            rows += if shown.last() == Some(&number) { count } else { 0 };
        }
        shown.sort_by_key(|&number| (list[number].address, number));
        let rows = shown.iter().flat_map(|&number| self.rows_of(&list[number]));
        HeatFacts { rows: rows.collect(), left_out }
    }

    fn rows_of<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = HeatRow> + 'a {
        (0..object.rows.count).map(move |number| {
            let row = object.rows.first + number;
            let (first_page, pages) = span(object, number);
            HeatRow {
                name: name(object),
                first_page,
                pages,
                places: self.heat.places(row, pages),
                moves: self.heat.moves(row),
            }
        })
    }

    /// The rows that cost most, with their history.
    fn ranges(&self) -> Vec<RangeFacts> {
        let all = self.objects.list.iter().flat_map(|object| {
            (0..object.rows.count).map(move |number| (object, number, object.rows.first + number))
        });
        let costs = |row: usize| self.row_costs.get(row).copied().unwrap_or_default();
        let mut all: Vec<_> = all.filter(|&(.., row)| costs(row) != (0, 0)).collect();
        all.sort_by_key(|&(.., row)| {
            let (faults, moves) = costs(row);
            (std::cmp::Reverse(faults + moves), row)
        });
        all.truncate(RANGES);
        let range = |(object, number, row): (&Object, usize, usize)| {
            let (first_page, pages) = span(object, number);
            let story = self.objects.stories.get(&row);
            let (history, left_out) = story.map(|it| it.tell(&self.words)).unwrap_or_default();
            let (faults, pages_moved) = costs(row);
            let name = name(object);
            RangeFacts { name, first_page, pages, faults, pages_moved, history, left_out }
        };
        all.into_iter().map(range).collect()
    }
}

/// Every page stays where it is until then.
fn settle(heat: &mut Heat, rows: Rows, pages: &Pages, until: u64) {
    for (page, state) in pages.known() {
        if let Some(row) = rows.of(page) {
            heat.stayed(row, state.copies, state.since, until);
        }
    }
}

/// Why a page moved, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Somebody touched it.
    Fetch,
    /// The program asked for it.
    Hint,
    /// Anything else, also the first touch.
    Other,
    /// It did not move.
    Stay,
}

impl Step {
    fn of(event: &Event) -> Step {
        match (event.to, event.from, event.reason) {
            (None, ..) if event.before == event.after => Step::Stay,
            (None, ..) if event.kind == Kind::Collapse => Step::Fetch,
            (Some(_), Some(_), Some(Reason::Demand | Reason::Collapse)) => Step::Fetch,
            (Some(_), Some(_), Some(Reason::User | Reason::Prefetch)) => Step::Hint,
            _ => Step::Other,
        }
    }
}

/// Who lost a page by a fetch, and who took it.
fn taken(event: &Event, step: Step) -> Option<(AgentId, AgentId)> {
    let lost = event.before.minus(event.after);
    let loser = event.from.filter(|&from| lost.contains(from)).or(lost.first())?.agent();
    let taker = event.agent.or(event.to.map(MemoryId::agent))?;
    (step == Step::Fetch && loser != taker).then_some((loser, taker))
}

/// What an allocation cost: counted, not timed.
fn cost(object: &Object) -> u64 {
    object.moved + object.faults
}

pub(crate) fn name(object: &Object) -> String {
    if object.name.is_empty() { "(unnamed)".to_owned() } else { object.name.clone() }
}

/// The first page of a row of an allocation, and its pages.
fn span(object: &Object, number: usize) -> (u64, u64) {
    let first = number as u64 * object.rows.pages_each;
    (first, object.rows.pages_each.min(object.pages - first))
}

fn allocation(object: &Object) -> AllocationFacts {
    AllocationFacts {
        name: name(object),
        address: object.address,
        bytes: object.bytes,
        times: object.times,
        faults: object.faults,
        pages_moved: object.moved,
        pages_evicted: object.evicted,
        pages_returned: object.returned,
        pages_handed: object.handed,
    }
}

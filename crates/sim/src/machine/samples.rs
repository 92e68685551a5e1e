//! Samples of accesses, for schemes that ask for them (Griffin's page classification): every GPU
//! counts its line accesses by page, and the host collects the counts at fixed intervals.

use farside_svm::Event;
use farside_svm::placement::Sample;
use farside_types::{CardId, Span};

use super::{Machine, SimEvent};
use crate::SimError;
use crate::pump::Pump;
use crate::state::state;

/// The counts since they were last collected.
#[derive(Debug)]
pub(super) struct Samples {
    every: Span,
    /// By page and GPU.
    counts: Vec<u32>,
    gpus: usize,
    /// Pages with a count, each once.
    touched: Vec<u32>,
}

state!(Samples {
    values: touched;
    fixed: counts;
    made: every, gpus;
});

impl Samples {
    #[inline]
    pub(super) fn count(&mut self, gpu: u8, page: u32) {
        let first = page as usize * self.gpus;
        let counts = &mut self.counts[first..first + self.gpus];
        if counts.iter().all(|&count| count == 0) {
            self.touched.push(page);
        }
        counts[usize::from(gpu)] += 1;
    }

    /// Takes the counts: page, GPU, accesses, in the order of pages and GPUs.
    fn take(&mut self) -> Vec<(u32, u8, u32)> {
        self.touched.sort_unstable();
        let mut taken = Vec::with_capacity(self.touched.len());
        for page in self.touched.drain(..) {
            let first = page as usize * self.gpus;
            let counts = &mut self.counts[first..first + self.gpus];
            for (gpu, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
                taken.push((page, gpu as u8, std::mem::take(count)));
            }
        }
        taken
    }
}

impl Machine {
    /// Begins to count, if the scheme wants it.
    pub(super) fn start_sampling(&mut self) {
        let Some(every) = self.driver.sample_every() else {
            return;
        };
        let gpus = self.gpus.len();
        let counts = vec![0; self.arena_pages as usize * gpus];
        self.samples = Some(Samples { every, counts, gpus, touched: Vec::new() });
        self.queue.push(self.start + every, SimEvent::Samples);
    }

    /// Tells the driver what was counted, and carries out what its scheme makes of it. The host is
    /// busy with each count (`host.sample_ns`).
    pub(super) fn handle_samples(&mut self) -> Result<(), SimError> {
        let Some(samples) = &mut self.samples else {
            return Ok(());
        };
        let every = samples.every;
        let taken = samples.take();
        if self.running.index < self.workload.launches() {
            self.queue.push(self.queue.now() + every, SimEvent::Samples);
        }
        let sample = |&(page, gpu, accesses): &(u32, u8, u32)| Sample {
            page: self.arena.offset(u64::from(page)),
            card: CardId(gpu),
            accesses,
        };
        let samples: Vec<Sample> = taken.iter().map(sample).collect();
        self.host_busy_with(samples.len() as u64);
        self.handle(Event::Samples { samples: &samples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_once_in_the_order_of_pages_and_gpus() {
        let counts = vec![0; 8];
        let mut samples = Samples { every: Span(1), counts, gpus: 2, touched: Vec::new() };
        for (gpu, page) in [(1, 3), (0, 3), (1, 3), (0, 1)] {
            samples.count(gpu, page);
        }
        assert_eq!(samples.take(), [(1, 0, 1), (3, 0, 1), (3, 1, 2)]);
        assert!(samples.take().is_empty());
    }
}

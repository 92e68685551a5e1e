//! How many mappings of cards' own memory the program may have.
//!
//! Linux lets a process have `vm.max_map_count` mappings, of whatever kind; when there are as many, its `mmap`, and with it its
//! allocator, fails. So what is shown of windows takes three quarters at most, of all windows in the process together, and
//! less where the rest of the program has more than three sixteenths: the last sixteenth is left for what it needs later.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What Linux allows unless it is told otherwise.
const USUAL: usize = 65_530;
/// Below so many nobody counts what the rest of the program has, while little is taken: it takes a millisecond for some
/// thousands.
const FEW: usize = 256;

/// Mappings that windows of this process have.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// What a process may have.
static ALLOWED: LazyLock<usize> = LazyLock::new(|| {
    let told = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let allowed = told.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL);
    // Tests fill it, on any machine: some distributions allow millions.
    if cfg!(test) { allowed.min(USUAL) } else { allowed }
});

/// Mappings that were taken; given back when dropped.
#[derive(Debug)]
pub(super) struct Mappings(usize);

/// What windows may have in all.
pub(super) fn most() -> usize {
    *ALLOWED / 4 * 3
}

/// What is taken with `count` more, if so many are left of those that are allowed, beside what others have.
fn sum(taken: usize, count: usize, others: usize) -> Option<usize> {
    let sum = taken.checked_add(count).filter(|&sum| sum <= most())?;
    let reserve = *ALLOWED / 16;
    (sum + others + reserve <= *ALLOWED).then_some(sum)
}

/// Whether it matters what the rest of the program has.
fn matters(pieces: usize, taken: usize) -> bool {
    pieces > FEW || taken > *ALLOWED / 4
}

impl Mappings {
    /// Mappings for something that lies in so many pieces.
    ///
    /// # Errors
    /// There are not so many left: why, and what to do.
    pub(super) fn take(pieces: usize) -> Result<Mappings, String> {
        // And what is left of the reservation behind it.
        let count = pieces + 1;
        let others = if matters(pieces, TAKEN.load(Ordering::SeqCst)) { others() } else { 0 };
        let fits = |taken: usize| sum(taken, count, others);
        let taken = TAKEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits);
        taken.map(|_| Mappings(count)).map_err(|taken| too_scattered(pieces, taken))
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::SeqCst);
    }
}

/// Mappings that the rest of the program has, about.
fn others() -> usize {
    let all = std::fs::read("/proc/self/maps")
        .map_or(0, |maps| maps.iter().filter(|&&byte| byte == b'\n').count());
    all.saturating_sub(TAKEN.load(Ordering::SeqCst))
}

/// Why what has so many pieces is not mapped beside `taken` others.
pub(super) fn too_scattered(pieces: usize, taken: usize) -> String {
    format!(
        "its frames lie in {pieces} pieces, and of the {} mappings that the process may have (vm.max_map_count) the memory of \
         cards takes {} at most, of which {taken} are in use; copy it (`CardBuffer::to_vec`), or free some",
        *ALLOWED,
        most()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_program_is_counted_when_much_is_taken_and_keeps_a_reserve() {
        let quarter = *ALLOWED / 4;
        assert!(matters(FEW + 1, 0) && matters(1, quarter + 1) && !matters(FEW, quarter));
        let free = *ALLOWED - quarter - *ALLOWED / 16;
        assert_eq!(sum(0, quarter, free), Some(quarter));
        assert_eq!(sum(0, quarter, free + 1), None);
        assert_eq!(sum(most(), 1, 0), None);
    }
}

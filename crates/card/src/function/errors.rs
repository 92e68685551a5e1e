//! Errors stay until they are cleared by writing ones.

/// The error register and what belongs to it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Errors {
    bits: u64,
    detail: u64,
}

impl Errors {
    /// Sets an error. Returns whether it was not set before.
    pub(super) fn set(&mut self, bit: u64, detail: u64) -> bool {
        let new = self.bits & bit == 0;
        if self.bits == 0 {
            self.detail = detail;
        }
        self.bits |= bit;
        new
    }

    /// Clears errors; with the last of them its detail.
    pub(super) fn clear(&mut self, bits: u64) {
        self.bits &= !bits;
        if self.bits == 0 {
            self.detail = 0;
        }
    }

    /// `ERROR_*`.
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    /// The tag or the address that belongs to the first of the errors.
    pub(super) fn detail(&self) -> u64 {
        self.detail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detail_is_the_first_errors_until_all_are_cleared() {
        let mut errors = Errors::default();
        assert!(errors.set(1, 10));
        assert!(errors.set(2, 20));
        assert!(!errors.set(2, 30), "it was set already");
        assert_eq!((errors.bits(), errors.detail()), (3, 10));
        errors.clear(1);
        assert_eq!((errors.bits(), errors.detail()), (2, 10));
        errors.clear(u64::MAX);
        assert_eq!((errors.bits(), errors.detail()), (0, 0));
    }
}

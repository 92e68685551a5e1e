//! Numbers, names and bytes out of an input.

/// Zeros and nothing when it is used up.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// A small number mostly, else one near an edge, or any.
    pub(super) fn number(&mut self) -> u64 {
        let (choice, small) = (self.byte(), u64::from(self.byte()));
        match choice {
            0..=199 => small % 8,
            200..=219 => small << 12,
            220..=229 => (1 << 32) - 1 + small,
            230..=239 => (1 << 63) - 1 + small,
            240..=247 => u64::MAX - small,
            248..=255 => {
                let mut bytes = [0; 8];
                let taken = self.take(8);
                bytes[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(bytes)
            }
        }
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let count = self.byte();
        if count == 255 {
            return vec![self.byte(); 1 << 16];
        }
        self.take(usize::from(count)).to_vec()
    }

    /// A name that there is, mostly.
    pub(super) fn name(&mut self, known: &[&str]) -> String {
        let choice = usize::from(self.byte());
        match choice {
            0..=239 => known[choice % known.len()].to_owned(),
            _ => String::from_utf8_lossy(&self.bytes()).into_owned(),
        }
    }

    /// Several of something, few mostly.
    pub(super) fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = match self.byte() {
            few @ 0..=249 => usize::from(few) % 4,
            many => (usize::from(many) - 249) * 300,
        };
        (0..count).map(|_| one(self)).collect()
    }
}

//! CRC-32 as Ethernet has it: polynomial 0x04c11db7 reflected, start and end inverted.

/// The reflected polynomial.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Tables: bytes that are taken at once.
const SLICES: usize = 8;

/// Table `n` holds what a byte becomes after `n` more bytes of zero.
const TABLES: [[u32; 256]; SLICES] = tables();

const fn tables() -> [[u32; 256]; SLICES] {
    let mut tables = [[0; 256]; SLICES];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < SLICES {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[slice - 1][byte];
            tables[slice][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

/// The CRC-32 of pieces that follow one another.
#[derive(Clone, Copy, Debug)]
pub struct Crc32(u32);

impl Default for Crc32 {
    fn default() -> Crc32 {
        Crc32::new()
    }
}

impl Crc32 {
    /// Of nothing yet.
    pub const fn new() -> Crc32 {
        Crc32(u32::MAX)
    }

    /// Takes more bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut crc = self.0;
        let mut chunks = bytes.chunks_exact(SLICES);
        for chunk in &mut chunks {
            let first = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]) ^ crc;
            let last = u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]);
            crc = spread(first, 4) ^ spread(last, 0);
        }
        for &byte in chunks.remainder() {
            crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(byte)) & 0xff) as usize];
        }
        self.0 = crc;
    }

    /// The CRC of all that was taken in.
    pub const fn value(self) -> u32 {
        !self.0
    }
}

/// What the four bytes of a word become after `behind` more bytes and those of the word itself.
fn spread(word: u32, behind: usize) -> u32 {
    let [a, b, c, d] = word.to_le_bytes().map(usize::from);
    TABLES[behind + 3][a] ^ TABLES[behind + 2][b] ^ TABLES[behind + 1][c] ^ TABLES[behind][d]
}

/// The CRC-32 of these bytes.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(bytes);
    crc.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, as the standard writes it.
    fn slowly(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            }
        }
        !crc
    }

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn every_byte_at_every_place_counts() {
        for place in 0..16 {
            for byte in 0..=255 {
                let mut bytes = [0; 16];
                bytes[place] = byte;
                assert_eq!(crc32(&bytes), slowly(&bytes), "{byte} at {place}");
            }
        }
    }

    #[test]
    fn every_length_and_every_cut_gives_what_the_slow_way_gives() {
        let bytes: Vec<u8> = (0..67u32).map(|n| (n * 151 + 7) as u8).collect();
        for length in 0..bytes.len() {
            let whole = slowly(&bytes[..length]);
            assert_eq!(crc32(&bytes[..length]), whole);
            for cut in 0..length {
                let mut crc = Crc32::new();
                crc.update(&bytes[..cut]);
                crc.update(&bytes[cut..length]);
                assert_eq!(crc.value(), whole, "{length} bytes cut at {cut}");
            }
        }
    }
}

//! A column of words is split in two on a card, and then joined in another order in the place of the first: nobody
//! knows beforehand how long each part becomes, and nothing is reserved for the worst case.
//!
//! The problem is that of Figure 1.2 of the thesis on memory management for Fletcher (docs/rtl/README.md): A of
//! some size is split into B and C, then D is made of them and A is needed no more. Whoever gives each of B and C the room
//! that it may need has three times A's size in use. A card that manages its memory in pages needs twice.
//!
//! ```text
//! cargo run --release -p farside --example split
//! ```

use farside::{
    Backing, CardBuffer, CardId, Growable, KernelContext, KernelError, Read, ReadSpan, Space,
};

/// Words of the column.
const WORDS: usize = 400_000;
/// Rows that are read at a time.
const ROWS: usize = 8192;

/// Texts as Arrow has them: text n is bytes from offset n to offset n + 1.
struct Column {
    offsets: CardBuffer<u32>,
    bytes: CardBuffer<u8>,
}

/// One that grows, of which nobody knows the size.
struct Builder {
    offsets: Growable<u32>,
    bytes: Growable<u8>,
}

type Spans = (ReadSpan<u32>, ReadSpan<u8>);

impl Column {
    fn lend(&self) -> Result<(Read<'_, u32>, Read<'_, u8>), farside::WindowError> {
        Ok((Read(self.offsets.host()?), Read(self.bytes.host()?)))
    }

    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }
}

impl Builder {
    fn new(kernel: &mut KernelContext) -> Result<Builder, KernelError> {
        let mut offsets = Growable::new();
        offsets.push(kernel, 0)?;
        Ok(Builder { offsets, bytes: Growable::new() })
    }

    fn add(&mut self, kernel: &mut KernelContext, texts: &[&[u8]]) -> Result<(), KernelError> {
        let begin = self.bytes.len() as u32;
        let ends = texts.iter().scan(begin, |end, text| {
            *end += text.len() as u32;
            Some(*end)
        });
        self.offsets.extend(kernel, &ends.collect::<Vec<_>>())?;
        self.bytes.extend(kernel, &texts.concat())
    }

    fn finish(self, kernel: &mut KernelContext) -> Result<Column, KernelError> {
        let (offsets, bytes) = (self.offsets.finish(kernel)?, self.bytes.finish(kernel)?);
        Ok(Column { offsets, bytes })
    }
}

/// Calls `each` with the texts of a column, many at a time.
fn read(
    kernel: &mut KernelContext,
    (offsets, bytes): &Spans,
    mut each: impl FnMut(&mut KernelContext, &[&[u8]]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let rows = offsets.len() - 1;
    for first in (0..rows).step_by(ROWS) {
        let last = rows.min(first + ROWS);
        let ends = kernel
            .with(offsets.slice(first..=last), |ends| ends.iter().copied().collect::<Vec<_>>())?;
        let (begin, end) = (ends[0] as usize, ends[last - first] as usize);
        let bytes = kernel
            .with(bytes.slice(begin..end), |bytes| bytes.iter().copied().collect::<Vec<_>>())?;
        let text = |pair: &[u32]| (pair[0] as usize - begin, pair[1] as usize - begin);
        let texts: Vec<&[u8]> =
            ends.windows(2).map(text).map(|(from, to)| &bytes[from..to]).collect();
        each(kernel, &texts)?;
    }
    Ok(())
}

/// B gets the short texts, C the long ones.
fn split(kernel: &mut KernelContext, a: &Spans) -> Result<(Column, Column), KernelError> {
    let (mut b, mut c) = (Builder::new(kernel)?, Builder::new(kernel)?);
    read(kernel, a, |kernel, texts| {
        let (short, long): (Vec<&[u8]>, Vec<&[u8]>) = texts.iter().partition(|it| it.len() < 8);
        b.add(kernel, &short)?;
        c.add(kernel, &long)
    })?;
    Ok((b.finish(kernel)?, c.finish(kernel)?))
}

/// D: the long ones, then the short ones.
fn join(kernel: &mut KernelContext, b: &Spans, c: &Spans) -> Result<Column, KernelError> {
    let mut d = Builder::new(kernel)?;
    for part in [c, b] {
        read(kernel, part, |kernel, texts| d.add(kernel, texts))?;
    }
    d.finish(kernel)
}

/// The column A, written by the program into the card's own memory.
fn words(space: &Space, card: CardId) -> Result<Column, farside::Error> {
    let word = |n: usize| &b"abcdefghijklmnop"[..1 + n * 7 % 16];
    let ends: Vec<u32> = std::iter::once(0)
        .chain((0..WORDS).scan(0, |end, n| {
            *end += word(n).len() as u32;
            Some(*end)
        }))
        .collect();
    let mut offsets = space.alloc_on(card, ends.len(), Backing::Eager)?;
    offsets.host_mut()?.copy_from_slice(&ends);
    let mut bytes = space.alloc_on(card, ends[WORDS] as usize, Backing::Eager)?;
    bytes.host_mut()?.copy_from_slice(&(0..WORDS).map(word).collect::<Vec<_>>().concat());
    Ok(Column { offsets, bytes })
}

fn main() -> Result<(), farside::Error> {
    let space = Space::builder().cards(1).card_window(32 << 20).build()?;
    let card = space.card(0)?;
    let all = space.own_memory_free(card)?;
    let used = || Ok::<_, farside::Error>(all - space.own_memory_free(card)?);

    let a = words(&space, card)?;
    let input = used()?;
    let split_it = |kernel: &mut KernelContext, spans: Spans| split(kernel, &spans);
    let (b, c) = space.kernel("split").on(card).run(a.lend()?, split_it)?;
    let with_a = used()?;
    drop(a);
    let (lent_b, lent_c) = (b.lend()?, c.lend()?);
    let join_it = |kernel: &mut KernelContext, (b, c): (Spans, Spans)| join(kernel, &b, &c);
    let d = space.kernel("join").on(card).run((lent_b, lent_c), join_it)?;
    let with_d = used()?;

    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("A: {WORDS} words, {:.2} MiB", mib(input));
    println!(
        "B: {} short ones, C: {} long ones; with A {:.2} MiB",
        b.rows(),
        c.rows(),
        mib(with_a)
    );
    println!("D: {} words in A's place; with B and C {:.2} MiB", d.rows(), mib(with_d));
    let peak = with_a.max(with_d) as f64 / input as f64;
    println!("at the most {peak:.2} times A; room for the worst case would be 3 times A");
    let last = d.offsets.host()?[WORDS] as usize;
    assert!(d.rows() == WORDS && last == d.bytes.len());
    assert!(peak < 2.05, "{peak}");
    Ok(())
}

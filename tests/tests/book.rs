//! The examples of the guide, README.md and other pages, as they stand there: they are compiled, and run where they can be.
//!
//! `documents.rs` compares them with the pages: what is changed here has to be changed there.

#![allow(unused, reason = "examples show what there is, not what is done with it")]

/// What README.md has.
#[rustfmt::skip]
mod readme {
    use farside::{Read, Space, Write};

    fn main() -> Result<(), farside::Error> {
        let space = Space::builder().cards(2).build()?;
        let mut input = space.alloc::<f32>(1 << 16)?;
        let mut output = space.alloc::<f32>(1 << 16)?;
        input.fill(1.5);

        let card = space.card(0)?;
        space.kernel("double").on(card).run((Read(&input), Write(&mut output)), |k, (input, output)| {
            k.with((input, output), |(input, mut output)| {
                for (out, value) in output.iter_mut().zip(input.iter()) {
                    *out = 2.0 * value;
                }
            })
        })?;
        assert_eq!(output[12345], 3.0); // the page comes back to the host
        Ok(())
    }

    #[test]
    fn it_runs() {
        main().unwrap();
    }

    fn ranges_and_words(k: &mut farside::KernelContext, input: farside::ReadSpan<f32>, output: farside::WriteSpan<f32>, at: farside::Ptr<u64>) -> Result<(), farside::KernelError> {
        // Ranges, at streaming speed: every page is there from the first line of the body to the last.
        k.with((input, output), |(input, mut output)| { /* plain slices */ })?;

        // Single words: the way to follow pointers.
        let item = k.load(at)?;
        Ok(())
    }
}

/// What docs/programming.md has.
#[rustfmt::skip]
mod programming {
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use farside::placement::{Action, Decision, FaultView};
    use farside::*;
    use farside_vfio_user::unix::Plain;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn spaces() -> Outcome {
        let space = Space::builder()
            .cards(2)                      // 1 to 16; default 2
            .card_memory(256 << 20)        // bytes each; default 64 MiB
            .processing_elements(2)        // kernels of a card at a time; default 1
            .placement("farside")          // the default; `farside schemes` lists them
            .build()?;
        assert_eq!(space.cards().len(), 2);
        Ok(())
    }

    fn adopting(space: &Space, card: CardId) -> Result<(), Error> {
        let mut values = vec![1u64; 1 << 20];
        let mut shared = space.adopt(&mut values, "values")?;
        space.kernel("farside.increment").on(card).call(Write(&mut shared))?;
        let values = shared.release()?;          // or drop it
        assert!(values.iter().all(|&value| value == 2));
        Ok(())
    }

    fn files(space: &Space, card: CardId) -> Outcome {
        std::fs::write("numbers.bin", [0; 80])?;
        let mut numbers = space.map_file::<u64>("numbers.bin")?;      // or map_file_in(path, bytes of the host's memory)
        space.kernel("farside.increment").on(card).call(Write(&mut numbers))?;
        numbers.sync()?;                                              // on the disk from here on
        numbers.close()?;
        assert_eq!(std::fs::read("numbers.bin")?[72..], 1u64.to_ne_bytes());
        Ok(())
    }

    fn fill(k: &mut KernelContext, words: WriteSpan<u64>) -> Result<(), KernelError> {
        k.with(words, |mut words: WriteView<u64>| words.iter_mut().for_each(|word| *word = 7))
    }

    fn scopes(space: &Space, a: CardId, b: CardId) -> Outcome {
        let mut words = space.alloc::<u64>(2000)?;
        let (left, right) = words.split_at_mut(1000);
        space.scope(|s| {
            let job = s.kernel("left").on(a).launch(Write(left), fill)?;
            s.kernel("right").on(b).launch(Write(right), fill)?;
            job.wait()
        })?;
        assert!(words.iter().all(|&word| word == 7));
        Ok(())
    }

    fn ranges(space: &Space, a: CardId, b: CardId) -> Outcome {
        let n = 10_000u64;
        let (mut x, mut y) = (space.alloc::<f32>(n as usize)?, space.alloc::<f32>(n as usize)?);
        x.fill(1.0);
        let shares = space.for_each("scale", 0..n).on([a, b]).grain(4096).run(
            (Split(&x), Write(&mut y)),
            |k, indices, (x, y)| {
                k.with((x, y), |(x, mut y): (ReadView<f32>, WriteView<f32>)| {
                    y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = 2.0 * x);
                })
            },
        )?;
        for share in &shares.cards {
            println!("{}: {} pieces, {} of them stolen", share.card, share.pieces, share.stolen);
        }
        assert!(y.iter().all(|&y| y == 2.0));
        Ok(())
    }

    type Table = AtomicSpan<AtomicU64>;

    fn build(k: &mut KernelContext, table: Table) -> Result<(), KernelError> {
        k.fetch_add_all(table, &[(0, 1), (1, 2)], None)
    }

    fn probe(k: &mut KernelContext, _: std::ops::Range<u64>, (table, rows): (Table, ReadSpan<u64>)) -> Result<(), KernelError> {
        let sum: u64 = k.with(rows, |rows: ReadView<u64>| rows.iter().sum())?;
        k.fetch_add_all(table, &[(2, sum)], None)
    }

    fn order(space: &Space, [a, b, c]: [CardId; 3]) -> Outcome {
        let n = 10_000u64;
        let table = space.alloc_atomic::<AtomicU64>(512, "table")?;
        let mut rows = space.alloc::<u64>(n as usize)?;
        rows.fill(3);
        space.scope(|s| {
            let moved = space.migrate_async(&table, a).start()?;
            let build = s.kernel("build").on(a).after(&moved).launch(Shared(&table), build)?;
            let pieces = s.for_each("probe", 0..n).on([b, c]).after(&build).launch((Shared(&table), Split(&rows)), probe)?;
            let back = space.migrate_async(&table, MemoryId::HOST).after(&pieces).start()?;
            back.wait()
        })?;
        assert_eq!(table[2].load(Relaxed), 30_000);
        Ok(())
    }

    fn kernel(_: &mut KernelContext, (): ()) -> Result<u64, KernelError> {
        Ok(5)
    }

    fn futures(space: &Space, card: CardId) -> Outcome {
        let next = space.alloc::<u64>(512)?;
        space.scope(|s| {
            block_on(async {
                let (job, moving) = (s.kernel("k").launch((), kernel)?, space.prefetch_async(&next, card).start()?);
                let (value, pages) = (job.await?, moving.await?);
                assert!(value == 5 && pages <= 1);
                Ok::<_, Error>(())
            })
        })?;
        Ok(())
    }

    /// Waits for a future on this thread, as the plainest of all executors.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                std::task::Poll::Ready(value) => return value,
                std::task::Poll::Pending => std::thread::park(),
            }
        }
    }

    fn kernels(space: &Space, card: CardId) -> Outcome {
        const STEP: usize = 1000;
        let input = space.alloc::<f32>(10 * STEP)?;
        let mut output = space.alloc::<f32>(10 * STEP)?;
        space.kernel("kernel").on(card).run(
            (Read(&input), Write(&mut output)),
            |k, (input, mut output)| {
                for start in (0..input.len()).step_by(STEP) {
                    let (from, to) = (input.slice(start..start + STEP), output.slice(start..start + STEP));
                    k.with((from, to), |(from, mut to)| { /* slices */ })?;
                }
                Ok(())
            }
        )?;
        Ok(())
    }

    fn words(space: &Space, card: CardId) -> Outcome {
        let numbers = space.alloc::<u64>(512)?;
        let [bins, table] = [space.alloc_atomic::<AtomicU64>(512, "bins")?, space.alloc_atomic::<AtomicU64>(512, "table")?];
        let pointers: Vec<Ptr<u64>> = numbers.iter().map(Ptr::to).collect();
        let mut numbers = numbers;
        let lent = (Write(&mut numbers), Shared(&bins), Shared(&table));
        space.kernel("words").on(card).run(lent, move |k, (_, bins, table)| {
            let mut values = vec![1; 512];
            let adds = [(7, 5)];
            let mut was = [0];
            let (at, old, new) = (3, 0, 9);
            let mut outcomes = [Ok(1)];
            k.gather(&pointers, &mut values)?;                      // values[i] = *pointers[i]
            k.scatter(&pointers, &values)?;                         // *pointers[i] = values[i]
            k.fetch_add_all(bins, &[(7, 1), (300, 2)], None)?;      // bins[7] += 1, bins[300] += 2
            k.fetch_add_all(bins, &adds, Some(&mut was))?;          // and what they were
            k.compare_exchange_all(table, &[(at, old, new)], &mut outcomes)?;
            assert_eq!((was, outcomes), ([1], [Ok(0)]));
            Ok(())
        })?;
        Ok(())
    }

    fn calls(space: &Space, card: CardId) -> Outcome {
        let (x, mut y) = (space.alloc::<f32>(512)?, space.alloc::<f32>(512)?);
        let n = space.kernel("farside.saxpy").on(card).call((Value(2.0f32), Read(&x), Write(&mut y)))?;
        assert_eq!(n, 512);
        Ok(())
    }

    fn scale(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
        let mut words = args.write::<u64>(0)?;
        let by = args.value::<u64>(1)?;
        for piece in pieces(words.len(), size_of::<u64>()) {   // at most 2 MiB each
            k.with(words.slice(piece), |mut words: WriteView<u64>| {
                words.iter_mut().for_each(|word| *word = word.wrapping_mul(by))
            })?;
        }
        Ok(words.len() as u64)
    }

    fn named() -> Outcome {
        let kernels = Kernels::builtin().with("my.scale", scale)?;
        let space = Space::builder().kernels(kernels).build()?;
        let mut words = space.alloc::<u64>(5000)?;
        words.fill(2);
        assert_eq!(space.kernel("my.scale").call((Write(&mut words), Value(21u64)))?, 5000);
        assert!(words.iter().all(|&word| word == 42));
        Ok(())
    }

    fn growing() -> Outcome {
        use farside::{Growable, Read, Space};

        let space = Space::builder().cards(1).card_window(64 << 20).build()?;
        let card = space.card(0)?;
        let mut input = space.alloc::<u32>(100_000)?;
        (0..).zip(input.iter_mut()).for_each(|(n, value)| *value = n * 7 % 1000);

        let large = space.kernel("select").on(card).run(Read(&input), |kernel, input| {
            let mut large = Growable::new();
            for first in (0..input.len()).step_by(4096) {
                let part = input.slice(first..input.len().min(first + 4096));
                let found: Vec<u32> = kernel.with(part, |part| part.iter().copied().filter(|&n| n > 900).collect())?;
                large.extend(kernel, &found)?;
            }
            large.finish(kernel)
        })?;
        assert!(large.host()?.iter().all(|&n| n > 900)); // the program sees the same pages, at the same address
        Ok(())
    }

    fn memories() -> Outcome {
        use farside::{Backing, Growable, MemoryKind, Read, Space};

        let memories = [(MemoryKind::Ddr, 64 << 20), (MemoryKind::Hbm, 16 << 20)];
        let space = Space::builder().cards(1).card_window_memories(memories).build()?;
        let card = space.card(0)?;
        let hbm = space.own_memory(card, "hbm")?; // the only one of its kind; else "hbm0"

        let mut table = space.alloc_on::<u32>(card, 1000, Backing::Eager.in_memory(hbm).read_only())?;
        table.fill_from(&vec![7; 1000])?;         // by the program: no kernel writes it
        let squares = space.kernel("squares").on(card).run(Read(table.host()?), move |kernel, table| {
            let values: Vec<u32> = kernel.with(table, |table| table.iter().map(|n| n * n).collect())?;
            let mut squares = Growable::in_memory(hbm);
            squares.extend(kernel, &values)?;
            squares.finish(kernel)
        })?;
        assert_eq!(squares.host()?[999], 49);
        for memory in space.own_memories(card)? {
            println!("{}: {} of {} bytes are free", memory.name, memory.bytes_free, memory.bytes);
        }
        Ok(())
    }

    fn columns() -> Outcome {
        use farside::{CardColumn, ColumnBuilder, Read, Space, TextBuilder};

        let space = Space::builder().cards(1).card_window(16 << 20).build()?;
        let mut input = space.alloc::<u32>(10_000)?;
        (0..).zip(input.iter_mut()).for_each(|(n, value)| *value = n * 7 % 1000);
        let (large, names) = space.kernel("columns").run(Read(&input), |kernel, input| {
            let (mut large, mut names) = (ColumnBuilder::<u32>::new(), TextBuilder::new());
            let values: Vec<u32> = kernel.with(input, |input| input.iter().copied().collect())?;
            for value in values.into_iter().filter(|&value| value > 990) {
                large.extend_nullable(kernel, &[(value < 999).then_some(value)])?;
                names.extend(kernel, &[&format!("number {value}")])?;
            }
            Ok((large.finish(kernel)?, names.finish(kernel)?))
        })?;
        let (large, names): (CardColumn<u32>, CardColumn<str>) = (CardColumn::of(large)?, CardColumn::of(names)?);
        let columns = vec![large.into_arrow("large")?, names.into_arrow("name")?];
        let (batch, _schema) = farside::arrow::ArrowArray::batch(columns);
        assert_eq!(batch.len(), 90);
        Ok(())
    }

    fn places() -> Outcome {
        let places = parse_cards("/run/farside/card0,/run/farside/card1")?;
        let space = Space::builder().cards_at(places).build()?;
        drop(space);
        Ok(())
    }

    fn streams() -> Outcome {
        let dial = || Ok(Box::new(Plain::tcp(TcpStream::connect("10.0.0.2:7301")?)?) as Box<dyn CardStream>);
        let place = CardPlace::Stream(Dialled::new("lab 2", dial));
        drop(place);
        Ok(())
    }

    fn square(_: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
        let number = args.value::<u64>(0)?;
        Ok(number * number)
    }

    #[expect(unreachable_code, reason = "it serves for ever")]
    fn serving(folder: std::path::PathBuf) -> Outcome {
        let kernels = Kernels::builtin().with("my.square", square)?.into();
        let _server = serve::CardServer::start(serve::CardConfig { kernels, ..serve::CardConfig::new(folder) })?;
        loop { std::thread::park(); }
        Ok(())
    }

    #[derive(Debug)]
    struct StayAtHome;

    impl PlacementScheme for StayAtHome {
        fn name(&self) -> &'static str { "stay-at-home" }
        fn on_fault(&mut self, fault: &FaultView) -> Decision {
            let action = match fault.owner {
                None => Action::Migrate,
                Some(_) => Action::MapRemote,
            };
            Decision::page(action, Reason::Demand)
        }
    }

    fn scheme() -> Outcome {
        let space = Space::builder().placement_scheme(Box::new(StayAtHome)).build()?;
        drop(space);
        Ok(())
    }

    #[test]
    fn it_runs() {
        let folder = std::env::temp_dir().join(format!("farside-book-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::env::set_current_dir(&folder).unwrap();
        let space = Space::builder().cards(3).build().unwrap();
        let [a, b, c] = [0, 1, 2].map(CardId);
        let run = || -> Outcome {
            spaces()?;
            adopting(&space, a)?;
            files(&space, a)?;
            scopes(&space, a, b)?;
            ranges(&space, a, b)?;
            order(&space, [a, b, c])?;
            futures(&space, a)?;
            kernels(&space, a)?;
            words(&space, a)?;
            calls(&space, a)?;
            named()?;
            growing()?;
            memories()?;
            columns()?;
            scheme()
        };
        run().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        // These need cards in other processes, or serve one for ever.
        let _ = (places as fn() -> Outcome, streams as fn() -> Outcome, serving as fn(std::path::PathBuf) -> Outcome);
    }
}

/// What docs/depending.md has.
#[rustfmt::skip]
mod depending {
    use bytemuck::{Pod, Zeroable};
    use farside::Ptr;

    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    struct Node {
        value: u64,
        next: Ptr<Node>,
    }
}

/// What docs/simulator.md has.
#[rustfmt::skip]
mod simulator {
    use farside_sim::cards::{CardMachine, CardsSpec, Layout, Work};
    use farside_types::CardId;

    #[test]
    fn it_runs() {
        let run = || -> Result<(), Box<dyn std::error::Error>> {
            let spec = CardsSpec::preset("as-published")?.with_overrides(&[("machine.transport", "peer")])?;
            let mut machine = CardMachine::new(spec)?;
            let array = machine.allocate(1 << 20, "array")?;
            machine.place(array, CardId(0), Layout::Contiguous)?;
            let migration = machine.migrate(array, CardId(1).memory())?;           // user-managed (UMPM)
            let job = machine.run(CardId(1), Work::Update { pages: array })?;      // faults if pages lack (ODPM)
            Ok(())
        };
        run().unwrap();
    }
}

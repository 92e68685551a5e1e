//! Kernels with names: built in, of your own, and from a shared library in C.
//!
//! A closure runs on a card that is part of the program. A kernel with a name also runs on a card
//! that is a process of its own. The second line calls kernels of `examples/c-kernels` too.
//!
//! ```text
//! cargo run --release -p farside --example named_kernels
//! cargo run --release -p farside --example named_kernels -- target/kernels.so
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use farside::{
    Error, KernelArgs, KernelContext, KernelError, Kernels, Read, Shared, Space, Value, Write,
    WriteView, pieces,
};

/// Multiplies each word of a range by a value: arguments are asked for by place and type.
fn scale(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let mut words = args.write::<u64>(0)?;
    let by = args.value::<u64>(1)?;
    for piece in pieces(words.len(), size_of::<u64>()) {
        k.with(words.slice(piece), |mut words: WriteView<u64>| {
            words.iter_mut().for_each(|word| *word = word.wrapping_mul(by));
        })?;
    }
    Ok(words.len() as u64)
}

fn main() -> Result<(), Error> {
    let library = std::env::args_os().nth(1);
    let mut builder =
        Space::builder().cards(2).kernels(Kernels::builtin().with("my.scale", scale)?);
    if let Some(path) = &library {
        // SAFETY: the library is the one of examples/c-kernels, which keeps the header's rules.
        builder = unsafe { builder.kernel_library(path) };
    }
    let space = builder.build()?;
    let (a, b) = (space.card(0)?, space.card(1)?);
    println!("kernels: {}\n", space.kernels().names().collect::<Vec<_>>().join(", "));

    let mut words = space.alloc_named::<u64>(1 << 16, "words")?;
    let filled = (Write(&mut words), Value(2u64));
    space.kernel("farside.fill").on(a).call(filled)?;
    space.kernel("my.scale").on(b).call((Write(&mut words), Value(21u64)))?;
    let sum = space.kernel("farside.sum").on(a).call(Read(&words))?;
    println!("card 0 fills, card 1 scales, card 0 sums up: {sum}");
    assert_eq!(sum, 42 << 16);

    // Both cards count their halves of a text into the same bins, at the same time.
    let mut text = space.alloc_named::<u8>(1 << 20, "text")?;
    text.iter_mut().zip("so it goes\n".bytes().cycle()).for_each(|(to, byte)| *to = byte);
    let bins = space.alloc_atomic::<AtomicU64>(256, "bins")?;
    let (left, right) = text.split_at(text.len() / 2);
    space.scope(|scope| {
        let on = |card| scope.kernel("farside.histogram").on(card);
        on(a).launch_call((Read(left), Shared(&bins)))?;
        on(b).launch_call((Read(right), Shared(&bins)))?.wait()
    })?;
    println!("the text has {} times an `o`", bins[usize::from(b'o')].load(Ordering::Relaxed));

    if library.is_some() {
        count_in_c(&space, &text)?;
    }
    match space.kernel("farside.histogrm").call(()) {
        Err(error) => println!("\nas it should be: {error}"),
        Ok(_) => unreachable!("no kernel has that name"),
    }
    match space.kernel("farside.sum").call((Read(&words), Value(1u8))) {
        Err(error) => println!("as it should be: {error}"),
        Ok(_) => unreachable!("it takes one argument"),
    }
    Ok(())
}

/// Calls the kernels of `examples/c-kernels/kernels.c`.
fn count_in_c(space: &Space, text: &[u8]) -> Result<(), Error> {
    let counts = space.alloc_atomic::<AtomicU64>(3, "counts")?;
    let words = space.kernel("example.count").call((Read(text), Shared(&counts)))?;
    println!("counted in C: {words} words in {} bytes", counts[2].load(Ordering::Relaxed));
    let (mut x, mut y) = (space.alloc::<f32>(5000)?, space.alloc::<f32>(5000)?);
    let mut z = space.alloc::<f32>(5000)?;
    x.fill(40.0);
    y.fill(2.0);
    space.kernel("example.add").call((Read(&x), Read(&y), Write(&mut z)))?;
    assert!(z.iter().all(|&z| z == 42.0));
    println!("added in C: {}", z[0]);
    Ok(())
}

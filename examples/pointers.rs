//! A linked list in shared memory: pointers that are valid on the host and on every card.
//!
//! The host builds the list, card 0 follows it to the middle, card 1 goes on from there. Then a
//! kernel follows a pointer that leads nowhere: that ends the kernel, and nothing else.
//!
//! ```text
//! cargo run --release -p farside --example pointers
//! ```

use bytemuck::{Pod, Zeroable};
use farside::{Error, Ptr, Read, Space};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Item {
    value: u64,
    next: Ptr<Item>,
}

const ITEMS: usize = 20_000;

fn main() -> Result<(), Error> {
    let space = Space::builder().cards(2).build()?;
    let mut items = space.alloc_named::<Item>(ITEMS, "list")?;
    // Neighbours in the list lie far apart in memory: 7919 and the length have no common divisor.
    let place = |position: usize| position * 7_919 % ITEMS;
    for position in 0..ITEMS {
        let next = match position + 1 {
            ITEMS => Ptr::NULL,
            following => Ptr::to(&items[place(following)]),
        };
        items[place(position)] = Item { value: position as u64, next };
    }

    let mut at = Ptr::to(&items[place(0)]);
    let mut sum = 0;
    for card in space.cards() {
        (at, sum) = space.kernel("follow").on(card).run(Read(&items), move |k, _items| {
            let (mut at, mut sum, mut steps) = (at, sum, 0);
            while !at.is_null() && steps < ITEMS / 2 {
                let item = k.load(at)?;
                (at, sum, steps) = (item.next, sum + item.value, steps + 1);
            }
            Ok((at, sum))
        })?;
        println!("after {card}: the sum is {sum}");
    }
    assert_eq!(sum, (0..ITEMS as u64).sum::<u64>());

    let behind = Ptr::to(&items[0]).offset(ITEMS);
    let wild = space.kernel("wild").run(Read(&items), move |k, _items| k.load(behind));
    match wild {
        Ok(_) => unreachable!("there is nothing behind the list"),
        Err(error) => println!("\nas it should be: {error}"),
    }
    println!("\n{}", space.report());
    Ok(())
}

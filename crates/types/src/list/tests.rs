use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
struct Item(u64);

impl Shelved for Item {
    fn shelf() -> &'static Shelf<Item> {
        static SHELF: Shelf<Item> = Shelf::new();
        &SHELF
    }
}

/// Of a type of its own, so that no other test takes from its shelf.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Alone(u32);

impl Shelved for Alone {
    fn shelf() -> &'static Shelf<Alone> {
        static SHELF: Shelf<Alone> = Shelf::new();
        &SHELF
    }
}

fn made() -> (usize, usize) {
    let idle = Alone::shelf().lock();
    (idle.made, idle.lists.len())
}

#[test]
fn the_last_holder_puts_a_list_back_and_the_next_list_has_its_room() {
    let few: List<Alone> = [Alone(1), Alone(2)].into();
    assert_eq!(made(), (0, 0), "few elements need no shelf: {few:?}");
    let list: List<Alone> = (0..100).map(Alone).collect();
    let (room, other) = (list.as_ptr(), list.clone());
    drop(list);
    assert_eq!(made(), (1, 0), "somebody has it");
    assert_eq!(other.len(), 100);
    drop(other);
    assert_eq!(made(), (1, 1));
    let next: List<Alone> = (0..100).map(Alone).collect();
    assert_eq!(next.as_ptr(), room);
    drop(next);
    Alone::shelf().stock(3, 10);
    assert_eq!(made(), (3, 3));
    Alone::shelf().stock(2, 10);
    assert_eq!(made(), (3, 3));
}

#[test]
fn holders_on_many_threads_lose_no_list_and_none_is_changed_under_another() {
    const THREADS: u64 = 4;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..2000u64 {
                    let first = thread << 32 | round;
                    let list: List<Item> = (first..first + 7).map(Item).collect();
                    let mut others: Vec<List<Item>> = vec![list.clone(); 3];
                    let last = others.pop();
                    let reader = scope.spawn(move || others.iter().map(|o| o[6].0).max());
                    drop(list);
                    assert_eq!(reader.join().unwrap(), Some(first + 6));
                    assert_eq!(last.map(|last| last[0].0), Some(first));
                }
            });
        }
    });
    let idle = Item::shelf().lock();
    assert!(idle.made < 200, "{} lists for {THREADS} threads", idle.made);
    assert_eq!(idle.made, idle.lists.len());
}

proptest! {
    #[test]
    fn a_list_is_a_vector_and_its_clones_do_not_change(
        steps in prop::collection::vec((0u8..5, 0u64..9), 1..60),
    ) {
        let (mut list, mut known) = (List::<Item, 3>::new(), Vec::new());
        let mut clones = Vec::new();
        for (what, value) in steps {
            match what {
                0..=2 => {
                    list.push(Item(value));
                    known.push(Item(value));
                }
                3 => {
                    list.truncate(value as usize);
                    known.truncate(value as usize);
                }
                _ => {
                    clones.push((list.clone(), known.clone()));
                    list.iter_mut().for_each(|item| item.0 += 1);
                    known.iter_mut().for_each(|item| item.0 += 1);
                }
            }
            prop_assert_eq!(&*list, known.as_slice());
        }
        for (clone, known) in clones {
            prop_assert_eq!(&*clone, known.as_slice());
        }
    }
}

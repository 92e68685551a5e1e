//! Kernels in C that build columns of Arrow.

use farside::{CardColumn, MadeColumn, WindowError, Write};

use super::own::{OWN, free, own_of};
use super::*;

/// Numbers and texts of so many rows; every `step`th of them is null, from row `first` on.
fn made(space: &Space, rows: u64, step: u64, first: u64) -> [MadeColumn; 2] {
    let mut made = space.alloc::<MadeColumn>(2).unwrap();
    call(space, "o.columns", (Write(&mut made), Value(rows), Value(step), Value(first))).unwrap();
    [made[0], made[1]]
}

#[test]
fn columns_that_a_kernel_in_c_builds_are_the_programs() {
    let space = own_of(OWN);
    for (rows, step, first) in
        [(0, 0, 0), (1, 0, 0), (1, 1, 0), (8, 8, 8), (77, 3, 0), (10_001, 7, 5000), (100_000, 0, 0)]
    {
        let [numbers, texts] = made(&space, rows, step, first);
        let numbers: CardColumn<i32> = space.take_over_column(CardId(1), numbers).unwrap();
        let texts: CardColumn<str> = space.take_over_column(CardId(1), texts).unwrap();
        assert_eq!((numbers.len(), texts.len()), (rows as usize, rows as usize));
        let is_valid = |n: u64| step == 0 || n < first || n % step != 0;
        let has_nulls = (0..rows).any(|n| !is_valid(n));
        for validity in [numbers.validity().unwrap(), texts.validity().unwrap()] {
            assert_eq!(validity.is_some(), has_nulls, "{rows} rows");
            let bit = |n: u64| validity.is_none_or(|bits| bits[n as usize / 8] >> (n % 8) & 1 == 1);
            assert!((0..rows).all(|n| bit(n) == is_valid(n)), "{rows} rows");
        }
        assert!((0..).zip(numbers.values().unwrap()).all(|(n, &value)| value == -n));
        let nulls = (0..rows).filter(|&n| !is_valid(n)).count();
        for (array, _schema) in [numbers.into_arrow("n").unwrap(), texts.into_arrow("t").unwrap()] {
            assert_eq!((array.len(), array.null_count()), (rows as usize, nulls));
        }
    }
    assert_eq!(free(&space), OWN, "arrays of Arrow give their memory back");
}

#[test]
fn columns_that_are_others_are_refused_and_not_lost() {
    let space = own_of(OWN);
    let [numbers, texts] = made(&space, 100, 7, 0);
    let refused = |outcome: Error| match outcome {
        Error::Window(error @ WindowError::NotMade { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let one = CardId(1);
    refused(space.take_over_column::<i64>(one, numbers).unwrap_err());
    let wider = refused(space.take_over_column::<i16>(one, numbers).unwrap_err());
    assert!(wider.contains("more bytes"), "{wider}");
    let other = refused(space.take_over_column::<str>(one, numbers).unwrap_err());
    assert!(other.contains("100 values, 0 offsets and 13 bytes of validity"), "{other}");
    refused(space.take_over_column::<u8>(one, texts).unwrap_err());
    for len in [99, 101, u64::MAX] {
        refused(space.take_over_column::<i32>(one, MadeColumn { len, ..numbers }).unwrap_err());
    }
    let none = MadeColumn { validity: texts.validity, ..numbers };
    assert_eq!(space.take_over_column::<i32>(one, none).unwrap().len(), 100);
    refused(space.take_over_column::<str>(one, texts).unwrap_err());
}

#[test]
fn texts_that_are_none_do_not_become_arrays_of_arrow() {
    let space = own_of(OWN);
    for (which, why) in [
        (0u64, "row 1 is no UTF-8"),
        (1, "row 1 begins within a character"),
        (2, "not in order"),
        (3, "not in order"),
    ] {
        let mut made = space.alloc::<MadeColumn>(1).unwrap();
        call(&space, "o.no_texts", (Write(&mut made), Value(which))).unwrap();
        let column: CardColumn<str> = space.take_over_column(CardId(1), made[0]).unwrap();
        let told = column.into_arrow("texts").unwrap_err().to_string();
        assert!(told.contains(why), "{which}: {told}");
    }
    assert_eq!(free(&space), OWN);
}

#[test]
fn rows_for_which_there_is_no_memory_are_not_half_there() {
    let space = own_of(OWN);
    let rows = call(&space, "o.fill_column", ()).unwrap();
    let bytes = |rows: u64| rows * 8 + rows / 8;
    assert!(bytes(rows) <= OWN && OWN < bytes(rows + 3 * 4096), "{rows}");
}

#[test]
fn misuse_of_columns_ends_its_job_and_nothing_else() {
    let space = own_of(OWN);
    for which in 0..11u64 {
        let told = refused(call(&space, "o.misuse_column", Value(which)));
        let wanted = match which {
            0..=4 => "NULL",
            5 => "begins as FARSIDE_COLUMN",
            6 => "begins as FARSIDE_TEXTS",
            7 | 8 => "are no column",
            9 => "elements of 8 bytes where they have 4",
            _ => "more than there can be",
        };
        assert!(told.contains(wanted), "{which}: {told}");
    }
    let told = failed(call(&space, "o.misuse_column", Value(11u64)));
    assert_eq!(told, "a column of texts has at most 2147483647 bytes; begin another one");
    assert_eq!(free(&space), OWN);
    assert_eq!(call(&space, "o.misuse_column", Value(99u64)).unwrap(), 0);
}

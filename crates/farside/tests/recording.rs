//! What kernels access is recorded, and the recording is a trace.

use std::path::PathBuf;

use farside::{
    Backing, CardId, Error, KernelContext, Ptr, Read, ReadView, Space, Write, WriteView,
};
use farside_sim::functional::{Options, replay};
use farside_workloads::Trace;
use farside_workloads::Workload;

/// Numbers in four pages.
const NUMBERS: usize = 4096;

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("farside-{}-{name}.parquet", std::process::id()))
}

/// One card writes all, the other reads all, the first changes one word.
fn work(space: &Space) -> Result<(), Error> {
    let mut data = space.alloc_named::<u32>(NUMBERS, "numbers")?;
    let _unused = space.alloc::<u8>(1)?;
    space.kernel("fill").on(CardId(0)).run(
        Write(&mut data[..]),
        |k: &mut KernelContext, all| {
            k.with(all, |mut all: WriteView<u32>| all.iter_mut().for_each(|x| *x = 1))
        },
    )?;
    space.kernel("sum").on(CardId(1)).run(Read(&data[..]), |k: &mut KernelContext, all| {
        let sum = k.with(all, |all: ReadView<u32>| all.iter().sum::<u32>())?;
        assert_eq!(sum as usize, NUMBERS);
        Ok(())
    })?;
    let word = Ptr::to(&data[1024]);
    space.kernel("word").on(CardId(0)).run(
        Write(&mut data[..]),
        move |k: &mut KernelContext, _| {
            let value = k.load(word)?;
            k.store(word, value + 1)
        },
    )?;
    assert_eq!(data[1024], 2);
    Ok(())
}

#[test]
fn a_recorded_run_replays() {
    let path = file("run");
    let space = Space::builder().cards(2).record(&path).build().unwrap();
    work(&space).unwrap();
    space.end_recording().unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // 64 lines a page: all written, all read, one read and written.
    assert_eq!(trace.accesses(), 4 * 64 + 4 * 64 + 2);
    assert_eq!((trace.gpus(), Workload::launches(&trace), trace.allocations().len()), (2, 3, 2));
    let on_touch = replay(&trace, "on-touch", &Options::default()).unwrap();
    let faults: Vec<_> = on_touch.gpus.iter().map(|gpu| gpu.local_faults).collect();
    assert_eq!((faults, on_touch.total.migrations), (vec![5, 4], 9));
    let duplication = replay(&trace, "duplication", &Options::default()).unwrap().total;
    assert_eq!(
        (duplication.migrations, duplication.duplications, duplication.collapses),
        (4, 4, 1)
    );
    assert_eq!((duplication.writes, duplication.protection_faults), (4 * 64 + 1, 1));
}

/// Nobody calls `end_recording` where the environment asks for it.
#[test]
fn what_is_missing_at_the_end_is_said() {
    if std::env::var_os(farside::RECORD_VARIABLE).is_some() {
        return work(&Space::builder().cards(2).build().unwrap()).unwrap();
    }
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "what_is_missing_at_the_end_is_said", "--nocapture"]);
    let output = program.env(farside::RECORD_VARIABLE, "/dev/full").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("farside: the recording /dev/full cannot be written: "), "{said}");
}

#[test]
fn a_cards_own_memory_is_no_part_of_a_recording() {
    let path = file("own");
    let space = Space::builder().cards(2).card_window(1 << 20).record(&path).build().unwrap();
    work(&space).unwrap();
    let mut own = space.alloc_on::<u64>(CardId(0), 1000, Backing::Lazy).unwrap();
    let own = Write(own.host_mut().unwrap());
    space.kernel("own").run(own, |kernel, own| kernel.store(own.ptr(0), 1)).unwrap();
    space.end_recording().unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((trace.accesses(), trace.allocations().len()), (514, 2));
    replay(&trace, "on-touch", &Options::default()).unwrap();
}

#[test]
fn a_recording_ends_with_its_space_and_is_refused_where_it_cannot_be() {
    let path = file("end");
    let space = Space::builder().cards(2).record(&path).build().unwrap();
    work(&space).unwrap();
    drop(space);
    assert_eq!(Trace::open(&path).unwrap().accesses(), 514);
    std::fs::remove_file(&path).unwrap();
    let nowhere = std::env::temp_dir().join("no/such/folder/a.parquet");
    let error = Space::builder().record(nowhere).build().unwrap_err().to_string();
    assert!(error.contains("no/such/folder/a.parquet"), "{error}");
}

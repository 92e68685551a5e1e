//! The audit log: what was decided and done about leases, one line each, kept in files of bounded size.
//!
//! A thread of its own writes: no lease waits for a disk. What it cannot take or write is counted, said once
//! in the daemon's log, and in the file when there is room again.

mod file;
mod record;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::LendError;
use crate::config::AuditSettings;
use file::LogFile;
pub(super) use record::{Act, Record};

/// Records that wait to be written, at most.
const WAITING_MAX: usize = 4096;
/// Records that are written before they are made durable, at most.
const BATCH_MAX: usize = 256;
/// How long the last ones may take to be written when the daemon ends.
const END_LIMIT: Duration = Duration::from_secs(2);

enum Order {
    Write(Box<Record>),
    /// The settings have changed.
    Settings(PathBuf, AuditSettings),
    /// Say when all before is written.
    Finish(SyncSender<()>),
}

/// See the module.
pub(super) struct Audit {
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
}

impl Audit {
    /// Begins to write in a folder.
    ///
    /// # Errors
    /// There can be no thread.
    pub(super) fn start(folder: PathBuf, settings: &AuditSettings) -> Result<Audit, LendError> {
        let (orders, received) = sync_channel(WAITING_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let mut writer = Writer {
            file: LogFile::new(folder, settings.clone()),
            lost: Arc::clone(&lost),
            told: 0,
            fails: false,
        };
        let write = move || writer.run(&received);
        std::thread::Builder::new()
            .name("farside-audit".into())
            .spawn(write)
            .map_err(LendError::system("starting to write the audit log"))?;
        Ok(Audit { orders, lost })
    }

    /// Has a record written, without waiting for it.
    pub(super) fn note(&self, record: Record) {
        self.order(Order::Write(Box::new(record)));
    }

    /// Writes there from now on.
    pub(super) fn set(&self, folder: PathBuf, settings: &AuditSettings) {
        self.order(Order::Settings(folder, settings.clone()));
    }

    /// Records that were not written.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// Waits until what was noted is written, as far as the disk takes it in time.
    pub(super) fn finish(&self) {
        let end = Instant::now() + END_LIMIT;
        let (done, is_done) = sync_channel(1);
        let mut order = Order::Finish(done);
        while let Err(TrySendError::Full(back)) = self.orders.try_send(order) {
            if Instant::now() >= end {
                return;
            }
            order = back;
            std::thread::sleep(Duration::from_millis(1));
        }
        // A disk that hangs is waited for no longer.
        let _ = is_done.recv_timeout(end.saturating_duration_since(Instant::now()));
    }

    fn order(&self, order: Order) {
        if self.orders.try_send(order).is_err() {
            self.lost.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// What the thread has.
struct Writer {
    file: LogFile,
    lost: Arc<AtomicU64>,
    /// How many lost ones the file knows of.
    told: u64,
    /// The last write failed.
    fails: bool,
}

impl Writer {
    fn run(&mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            let mut durable = self.obey(order);
            for _ in 1..BATCH_MAX {
                match orders.try_recv() {
                    Ok(order) => durable |= self.obey(order),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            if durable {
                let synced = self.file.sync();
                self.judge(synced, 0);
            }
        }
    }

    /// Whether it has to last.
    fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Write(record) => {
                self.tell_lost();
                let written = self.file.write(&record.line());
                self.judge(written, 1);
                record.act.lasts()
            }
            Order::Finish(done) => {
                let synced = self.file.sync();
                self.judge(synced, 0);
                // Whoever waited may have gone.
                let _ = done.send(());
                false
            }
            Order::Settings(folder, settings) => {
                self.file = LogFile::new(folder, settings);
                false
            }
        }
    }

    /// Writes how many are missing, if some are.
    fn tell_lost(&mut self) {
        let lost = self.lost.load(Ordering::SeqCst);
        if lost > self.told {
            let missing = lost - self.told;
            let record = Record::of(Act::Lost).why(format!("{missing} records before this one"));
            if self.file.write(&record.line()).is_ok() {
                self.told = lost;
            }
        }
    }

    /// Counts what was lost, and says so the first time.
    fn judge(&mut self, done: std::io::Result<()>, records: u64) {
        match done {
            Ok(()) => self.fails = false,
            Err(error) => {
                self.lost.fetch_add(records, Ordering::SeqCst);
                if !std::mem::replace(&mut self.fails, true) {
                    let path = self.file.path();
                    tracing::error!(path = %path.display(), %error, "the audit log cannot be written; leases go on without it");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("farside-audit-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn read(path: &std::path::Path) -> Vec<Record> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    #[test]
    fn what_is_noted_is_read_back_as_it_was() {
        let folder = folder("read");
        let audit = Audit::start(folder.clone(), &AuditSettings::default()).unwrap();
        let mut noted = Vec::new();
        for number in 0..100 {
            let record = Record::of(if number % 2 == 0 { Act::Granted } else { Act::Returned });
            let record = record.host("b").why(format!("line\nbreak {number}"));
            noted.push(record.clone());
            audit.note(record);
        }
        audit.finish();
        assert_eq!(read(&folder.join("audit.jsonl")), noted);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_full_disk_is_counted_and_said_in_the_file_when_there_is_room() {
        let folder = folder("full");
        let path = folder.join("audit.jsonl");
        // Whatever is written there finds no space.
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let audit = Audit::start(folder.clone(), &AuditSettings::default()).unwrap();
        for _ in 0..3 {
            audit.note(Record::of(Act::Granted));
        }
        while audit.lost() < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(&path).unwrap();
        audit.note(Record::of(Act::Returned));
        audit.finish();
        let acts: Vec<_> = read(&path).into_iter().map(|record| (record.act, record.why)).collect();
        let lost = Some("3 records before this one".to_owned());
        assert_eq!(acts, [(Act::Lost, lost), (Act::Returned, None)]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn whoever_notes_never_waits() {
        let folder = folder("wait");
        let audit = Audit::start(folder.clone(), &AuditSettings::default()).unwrap();
        let started = std::time::Instant::now();
        for _ in 0..3 * WAITING_MAX {
            audit.note(Record::of(Act::Granted));
        }
        assert!(started.elapsed() < Duration::from_secs(5));
        let lost = audit.lost();
        audit.finish();
        let told = read(&folder.join("audit.jsonl"));
        let written = told.iter().filter(|record| record.act == Act::Granted).count() as u64;
        assert_eq!(written + lost, 3 * WAITING_MAX as u64);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

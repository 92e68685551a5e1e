//! Results under a hash of what they depend on. A result is there whole or not at all, whenever
//! the machine stops: it is written beside its place, synced, and renamed into it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use farside_sim::Outcome;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::SweepError;

/// What a result depends on, and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    parts: serde_json::Value,
    hash: String,
}

impl Key {
    pub(super) fn new(parts: serde_json::Value) -> Key {
        // Objects are maps sorted by name: equal parts give equal text.
        let hash = hex(&Sha256::digest(parts.to_string().as_bytes()));
        Key { parts, hash }
    }

    /// SHA-256, in hexadecimal digits.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// Results on disk.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    key: serde_json::Value,
    outcome: Outcome,
}

/// Where results are built before they are renamed to their place.
const UNFINISHED: &str = "unfinished";

impl Cache {
    /// Opens or makes the cache in `folder`, and clears away what processes left unfinished that
    /// are no more.
    ///
    /// # Errors
    /// [`SweepError::File`].
    pub fn open(folder: &Path) -> Result<Cache, SweepError> {
        let unfinished = folder.join(UNFINISHED);
        fs::create_dir_all(&unfinished).map_err(SweepError::file(&unfinished))?;
        for entry in fs::read_dir(&unfinished).map_err(SweepError::file(&unfinished))? {
            let path = entry.map_err(SweepError::file(&unfinished))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let process = name.split('.').next().unwrap_or_default();
            if !Path::new("/proc").join(process).exists() {
                // Another sweep may clear at the same time.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(Cache { folder: folder.to_owned() })
    }

    /// The default place: `$XDG_CACHE_HOME/farside/cells`, or `~/.cache/farside/cells`; the folder
    /// for temporary files where there is no home.
    pub fn default_folder() -> PathBuf {
        let some = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = some("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || some("HOME").map(|home| PathBuf::from(home).join(".cache"));
        cache.or_else(home).unwrap_or_else(std::env::temp_dir).join("farside").join("cells")
    }

    fn place(&self, key: &Key) -> PathBuf {
        self.folder.join(&key.hash[..2]).join(format!("{}.json", key.hash))
    }

    /// The result, if it is there. What cannot be read, or is the result of something else, is as
    /// good as not there: it is computed again and replaced.
    pub fn get(&self, key: &Key) -> Option<Outcome> {
        let text = fs::read_to_string(self.place(key)).ok()?;
        let entry: Entry = serde_json::from_str(&text).ok()?;
        (entry.key == key.parts).then_some(entry.outcome)
    }

    /// Keeps a result. When this returns it survives whatever happens to the machine.
    ///
    /// # Errors
    /// [`SweepError::File`].
    pub fn put(&self, key: &Key, outcome: &Outcome) -> Result<(), SweepError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{number}", std::process::id());
        let unfinished = self.folder.join(UNFINISHED).join(name);
        let place = self.place(key);
        let folder = self.folder.join(&key.hash[..2]);
        let entry = Entry { key: key.parts.clone(), outcome: outcome.clone() };
        // Numbers, strings, lists and maps with plain keys: writing them has no way to fail.
        let text = serde_json::to_vec(&entry).unwrap_or_default();
        fs::create_dir_all(&folder).map_err(SweepError::file(&folder))?;
        let written = File::create(&unfinished)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
        written.map_err(SweepError::file(&unfinished))?;
        fs::rename(&unfinished, &place).map_err(SweepError::file(&place))?;
        // The new name is on disk when the folders that lead to it are.
        for folder in [&folder, &self.folder] {
            File::open(folder).and_then(|f| f.sync_all()).map_err(SweepError::file(folder))?;
        }
        Ok(())
    }
}

/// SHA-256 of a file, in hexadecimal digits.
pub(super) fn hash_file(path: &Path) -> Result<String, SweepError> {
    let mut file = File::open(path).map_err(SweepError::file(path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer).map_err(SweepError::file(path))?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..count]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use farside_sim::{Simulation, Spec};
    use farside_workloads::Workload;
    use farside_workloads::{Access, Trace};
    use std::sync::Arc;

    pub(crate) fn outcome() -> Outcome {
        let access = Access { page: 0, bytes: 64, write: false };
        let trace = Trace::from_accesses("t", &[4096], &[vec![(1, 7, access)]]).unwrap();
        let trace: Arc<dyn Workload> = Arc::new(trace);
        let simulation = Simulation::new(&Spec::default(), &trace, "on-touch").unwrap();
        simulation.run(|_| ()).unwrap()
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("farside-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn what_was_put_is_there_and_nothing_else() {
        let folder = folder("cache");
        let cache = Cache::open(&folder).unwrap();
        let (key, other) = (Key::new(1.into()), Key::new(2.into()));
        assert!(cache.get(&key).is_none());
        cache.put(&key, &outcome()).unwrap();
        assert_eq!(cache.get(&key), Some(outcome()));
        assert!(cache.get(&other).is_none());
        assert_eq!(Cache::open(&folder).unwrap().get(&key), Some(outcome()));
        assert_eq!(fs::read_dir(folder.join(UNFINISHED)).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_broken_or_something_else_is_not_there() {
        let folder = folder("broken-cache");
        let cache = Cache::open(&folder).unwrap();
        let (key, other) = (Key::new(1.into()), Key::new(2.into()));
        cache.put(&key, &outcome()).unwrap();
        let text = fs::read_to_string(cache.place(&key)).unwrap();
        fs::create_dir_all(cache.place(&other).parent().unwrap()).unwrap();
        fs::write(cache.place(&other), &text).unwrap();
        assert!(cache.get(&other).is_none(), "the result of something else");
        fs::write(cache.place(&key), &text[..text.len() / 2]).unwrap();
        assert!(cache.get(&key).is_none(), "half a result");
        cache.put(&key, &outcome()).unwrap();
        assert!(cache.get(&key).is_some());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_dead_processes_left_is_cleared_away() {
        let folder = folder("cleared-cache");
        Cache::open(&folder).unwrap();
        let (dead, alive) = ("4999999.0", format!("{}.0", std::process::id()));
        for name in [dead, &alive] {
            fs::write(folder.join(UNFINISHED).join(name), "half").unwrap();
        }
        Cache::open(&folder).unwrap();
        assert!(!folder.join(UNFINISHED).join(dead).exists());
        assert!(folder.join(UNFINISHED).join(alive).exists());
        fs::remove_dir_all(folder).unwrap();
    }
}

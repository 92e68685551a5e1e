//! The files of the audit log: `audit.jsonl`, and `audit.jsonl.1` and so on, the older the higher.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::config::AuditSettings;

const NAME: &str = "audit.jsonl";

/// See the module. It is opened when something is written, and again after something failed.
#[derive(Debug)]
pub(super) struct LogFile {
    folder: PathBuf,
    settings: AuditSettings,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Of whole lines.
    bytes: u64,
}

impl LogFile {
    pub(super) fn new(folder: PathBuf, settings: AuditSettings) -> LogFile {
        LogFile { folder, settings, open: None }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    fn numbered(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{NAME}.{number}"))
    }

    /// Writes a line whole, or nothing that is read as one.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::at(&self.path())?,
        };
        if open.bytes > 0 && open.bytes + line.len() as u64 > self.settings.file_bytes_max {
            drop(open);
            self.rotate()?;
            open = Open::at(&self.path())?;
        }
        match open.file.write_all(line) {
            Ok(()) => {
                open.bytes += line.len() as u64;
                self.open = Some(open);
                Ok(())
            }
            Err(error) => {
                // What was written of it goes; if that fails too, it is ended when the file is opened.
                let _ = open.file.set_len(open.bytes);
                Err(error)
            }
        }
    }

    /// Makes what was written last.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| open.file.sync_data())
    }

    /// Makes room for a new file: the oldest goes.
    fn rotate(&self) -> io::Result<()> {
        let last = self.settings.files_max - 1;
        if last == 0 {
            return remove(&self.path());
        }
        // One that is one too many since the settings were changed goes as well.
        for beyond in last.. {
            match std::fs::remove_file(self.numbered(beyond)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && beyond > last => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        for number in (1..last).rev() {
            rename(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename(&self.path(), &self.numbered(1))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Open {
    /// Opens it to append; a line that was cut off before is ended.
    fn at(path: &Path) -> io::Result<Open> {
        let mut options = File::options();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut bytes = file.seek(SeekFrom::End(0))?;
        if bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::Start(bytes - 1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                bytes += 1;
            }
        }
        Ok(Open { file, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("farside-log-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap().flatten();
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn settings(file_bytes_max: u64, files_max: u32) -> AuditSettings {
        AuditSettings { folder: None, file_bytes_max, files_max }
    }

    #[test]
    fn the_files_are_bounded_and_the_newest_are_kept_whole() {
        let folder = Folder::new("bounded");
        let mut log = LogFile::new(folder.0.clone(), settings(100, 3));
        for number in 0..100 {
            log.write(format!("line {number:04}\n").as_bytes()).unwrap();
        }
        assert_eq!(folder.names(), ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]);
        let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).unwrap();
        let all = read("audit.jsonl.2") + &read("audit.jsonl.1") + &read("audit.jsonl");
        let lines: Vec<&str> = all.lines().collect();
        let from = 100 - lines.len();
        let wanted: Vec<String> = (from..100).map(|number| format!("line {number:04}")).collect();
        assert_eq!(lines, wanted);
        for name in folder.names() {
            assert!(read(&name).len() <= 100);
        }
        // Fewer from now on: those that are too many go at the next turn.
        let mut log = LogFile::new(folder.0.clone(), settings(100, 1));
        for _ in 0..20 {
            log.write(b"more lines\n").unwrap();
        }
        assert_eq!(folder.names()[0], "audit.jsonl");
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other() {
        let folder = Folder::new("cut");
        std::fs::write(folder.0.join(NAME), "whole\ncut o").unwrap();
        let mut log = LogFile::new(folder.0.clone(), settings(1000, 2));
        log.write(b"next\n").unwrap();
        let text = std::fs::read_to_string(folder.0.join(NAME)).unwrap();
        assert_eq!(text, "whole\ncut o\nnext\n");
    }
}

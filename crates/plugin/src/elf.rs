//! What a file says of itself before the loader runs any of it: a shared library of this machine?

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::LibraryError;

/// Bytes of the head that are looked at.
const HEAD: usize = 20;
/// `ELFCLASS64`, `ELFDATA2LSB` or `ELFDATA2MSB`: how this machine's files begin.
const CLASS: u8 = 2;
const ORDER: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };
/// `ET_DYN`: a shared library.
const SHARED: u16 = 3;

/// The machines of ELF that have a name here.
const MACHINES: [(u16, &str); 8] = [
    (3, "x86"),
    (8, "mips"),
    (20, "powerpc"),
    (21, "powerpc64"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
];

/// Looks at the head of a file; runs nothing of it.
pub(crate) fn check(path: &Path) -> Result<(), LibraryError> {
    let file = |error: std::io::Error| LibraryError::File(error.to_string());
    let mut head = Vec::with_capacity(HEAD);
    // Before it is opened: that of a pipe waits for a writer.
    let kind = path.metadata().map_err(file)?.file_type();
    if kind.is_dir() {
        return Err(LibraryError::File("it is a folder".to_owned()));
    }
    if !kind.is_file() {
        return Err(LibraryError::File("it is no file, but a pipe, socket or device".to_owned()));
    }
    let opened = File::open(path).map_err(file)?;
    opened.take(HEAD as u64).read_to_end(&mut head).map_err(file)?;
    check_head(&head)
}

fn check_head(head: &[u8]) -> Result<(), LibraryError> {
    if head.len() < HEAD || !head.starts_with(b"\x7fELF") {
        return Err(LibraryError::NotElf);
    }
    let half = |at: usize| {
        let bytes = [head[at], head[at + 1]];
        if head[5] == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    };
    let machine = half(18);
    let named = MACHINES.iter().find(|(number, _)| *number == machine);
    let theirs =
        named.map_or_else(|| format!("ELF machine {machine}"), |(_, name)| (*name).to_owned());
    if head[4] != CLASS || head[5] != ORDER || theirs != std::env::consts::ARCH {
        let bits = if head[4] == 2 { 64 } else { 32 };
        return Err(LibraryError::Machine { theirs: format!("{theirs}, {bits} bits") });
    }
    if half(16) != SHARED {
        return Err(LibraryError::NotElf);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head of this class, byte order, type and machine.
    fn head(class: u8, order: u8, kind: u16, machine: u16) -> Vec<u8> {
        let mut head = vec![0x7f, b'E', b'L', b'F', class, order];
        head.resize(16, 0);
        for half in [kind, machine] {
            let bytes = if order == 2 { half.to_be_bytes() } else { half.to_le_bytes() };
            head.extend_from_slice(&bytes);
        }
        head
    }

    #[test]
    fn a_library_of_another_machine_is_named() {
        for (class, order, machine, named) in [
            (2, 1, 183, "aarch64"),
            (1, 1, 3, "x86, 32 bits"),
            (2, 2, 21, "powerpc64"),
            (2, 1, 999, "machine 999"),
        ] {
            if named.starts_with(std::env::consts::ARCH) {
                continue;
            }
            let why = check_head(&head(class, order, SHARED, machine)).unwrap_err().to_string();
            assert!(why.contains(named) && why.contains(std::env::consts::ARCH), "{why}");
        }
    }

    /// A socket as well as a pipe: neither is opened.
    #[test]
    fn what_is_no_file_is_refused_without_waiting_for_it() {
        let name = format!("farside-elf-{}.so", std::process::id());
        let path = std::env::temp_dir().join(name);
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let why = check(&path).unwrap_err().to_string();
        assert!(why.contains("pipe, socket or device"), "{why}");
        drop(socket);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_library_is_refused() {
        assert!(
            check(&std::env::current_exe().unwrap()).is_ok(),
            "a position-independent program is one"
        );
        for head in
            [b"".to_vec(), b"\x7fELF".to_vec(), b"#!/bin/sh\necho this is a script".to_vec()]
        {
            assert!(matches!(check_head(&head), Err(LibraryError::NotElf)));
        }
        let ours = MACHINES.iter().find(|(_, name)| *name == std::env::consts::ARCH).unwrap().0;
        assert!(check_head(&head(CLASS, ORDER, SHARED, ours)).is_ok());
        let object = check_head(&head(CLASS, ORDER, 1, ours));
        assert!(matches!(object, Err(LibraryError::NotElf)), "an object file");
    }
}

//! Shared libraries of kernels.
//!
//! A library is loaded for as long as the process lives: its kernels may run at any time, and what
//! its constructors started cannot be undone.

use std::ffi::c_char;
use std::path::Path;

use farside_card::interface::NAME_BYTES_MAX;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::c_abi::{ABI_VERSION, CFunction, kernel};
use super::{Kernels, KernelsError, LibraryError};

/// Kernels of one library.
const LIBRARY_KERNELS_MAX: u32 = 1024;

/// What a library exports.
const SYMBOL: &[u8] = b"farside_kernels\0";

/// `farside_kernel`.
#[repr(C)]
struct CKernel {
    name: *const c_char,
    function: Option<CFunction>,
}

/// `farside_kernel_library`.
#[repr(C)]
struct CLibrary {
    abi_version: u32,
    count: u32,
    kernels: *const CKernel,
}

type Export = unsafe extern "C" fn(abi_version: u32) -> *const CLibrary;

impl Kernels {
    /// The table with the kernels of a shared library that is written to
    /// `include/farside-kernel.h`. All of them or, by an error, none. A path without a slash is a
    /// file of the current directory.
    ///
    /// # Errors
    /// [`KernelsError::Library`] says what is wrong with it.
    ///
    /// # Safety
    /// The library's code runs in this process, now and when its kernels run: it keeps the rules of
    /// the header. A kernel that crashes takes the process with it.
    pub unsafe fn load_library(self, path: impl AsRef<Path>) -> Result<Kernels, KernelsError> {
        let path = path.as_ref();
        // SAFETY: passed on to the caller.
        unsafe { load(self, path) }
            .map_err(|why| KernelsError::Library { path: path.display().to_string(), why })
    }
}

/// # Safety
/// As [`Kernels::load_library`].
unsafe fn load(kernels: Kernels, path: &Path) -> Result<Kernels, LibraryError> {
    // SAFETY: passed on to the caller; a library that is written to the header gives null or a
    // table that stays.
    let library = unsafe { export(path)?(ABI_VERSION).as_ref() };
    let library = library.ok_or(LibraryError::Version { given: None })?;
    if library.abi_version != ABI_VERSION {
        return Err(LibraryError::Version { given: Some(library.abi_version) });
    }
    if library.count > LIBRARY_KERNELS_MAX {
        return Err(LibraryError::TooMany { count: library.count, most: LIBRARY_KERNELS_MAX });
    }
    if library.kernels.is_null() || library.count == 0 {
        return Err(LibraryError::NoKernels);
    }
    // SAFETY: a table of this version has `count` kernels there.
    let table = unsafe { std::slice::from_raw_parts(library.kernels, library.count as usize) };
    table.iter().enumerate().try_fold(kernels, |kernels, (index, entry)| {
        // SAFETY: names are null or strings that end with a zero.
        let name = unsafe { name(entry.name, index) }?;
        let function =
            entry.function.ok_or_else(|| LibraryError::NoFunction { name: name.into() })?;
        // SAFETY: passed on to the caller.
        let function = unsafe { kernel(function) };
        let refused = |why: KernelsError| LibraryError::Name { index, why: why.to_string() };
        kernels.with_function(name, function).map_err(refused)
    })
}

/// Opens a library, for ever, and finds what it exports.
///
/// # Safety
/// As [`Kernels::load_library`]: its constructors run.
unsafe fn export(path: &Path) -> Result<Export, LibraryError> {
    // An absolute path: the loader looks for a bare name elsewhere.
    let found = path.canonicalize().map_err(|error| LibraryError::File(error.to_string()))?;
    let open = |why: libloading::Error| LibraryError::Open(why.to_string());
    // SAFETY: what the library does is the caller's.
    let library = unsafe { Library::open(Some(&found), RTLD_NOW | RTLD_LOCAL) }.map_err(open)?;
    // SAFETY: in a library that is written to the header this is a function of this type.
    let export = unsafe { library.get::<Export>(SYMBOL) };
    let export = export.map(|symbol| *symbol).map_err(|_| LibraryError::NoSymbol);
    // Never closed: see the module.
    std::mem::forget(library);
    export
}

/// The name of a kernel; not more of it is read than a name may have.
///
/// # Safety
/// `name` is null or a string that ends with a zero and lives for ever.
unsafe fn name(name: *const c_char, index: usize) -> Result<&'static str, LibraryError> {
    if name.is_null() {
        return Err(LibraryError::Name { index, why: "it is NULL".to_owned() });
    }
    let most = NAME_BYTES_MAX as usize;
    // SAFETY: passed on to the caller.
    let bytes = unsafe {
        let bytes = libc::strnlen(name, most + 1);
        std::slice::from_raw_parts(name.cast::<u8>(), bytes)
    };
    if bytes.len() > most {
        let why = format!("it has more than {most} bytes");
        return Err(LibraryError::Name { index, why });
    }
    let not_text = |_| LibraryError::Name { index, why: "it is not UTF-8".to_owned() };
    std::str::from_utf8(bytes).map_err(not_text)
}

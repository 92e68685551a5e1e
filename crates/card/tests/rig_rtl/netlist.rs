//! A netlist that Verilator compiled, behind the C interface of `rtl/lockstep/window_mmu.cpp` or of another one there.

use std::path::Path;
use std::ptr::NonNull;

use libloading::Library;

/// What goes into the ports. Laid out as there.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Inputs {
    pub(crate) window_base: u64,
    pub(crate) in_addr: u64,
    pub(crate) in_tag: u64,
    pub(crate) inval_first: u64,
    pub(crate) inval_last: u64,
    pub(crate) root_index: u64,
    pub(crate) root_word: u64,
    /// As many as a beat has.
    pub(crate) r_data: [u64; 8],
    pub(crate) rst: u8,
    pub(crate) in_valid: u8,
    pub(crate) in_write: u8,
    pub(crate) out_ready: u8,
    pub(crate) inval_valid: u8,
    pub(crate) root_valid: u8,
    pub(crate) ar_ready: u8,
    pub(crate) r_valid: u8,
    pub(crate) r_resp: u8,
}

/// What comes out of them.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outputs {
    pub(crate) out_addr: u64,
    pub(crate) out_tag: u64,
    pub(crate) ar_addr: u64,
    pub(crate) in_ready: u8,
    pub(crate) out_valid: u8,
    pub(crate) out_write: u8,
    pub(crate) out_inwindow: u8,
    pub(crate) out_memory: u8,
    pub(crate) out_status: u8,
    pub(crate) inval_ready: u8,
    pub(crate) inval_done: u8,
    pub(crate) root_ready: u8,
    pub(crate) ar_valid: u8,
    pub(crate) ar_size: u8,
    pub(crate) r_ready: u8,
    pub(crate) event_accept: u8,
    pub(crate) event_look: u8,
    pub(crate) event_held: u8,
    pub(crate) event_drop: u8,
    pub(crate) event_walk: u8,
    pub(crate) event_found: u8,
    pub(crate) event_ahead: u8,
    pub(crate) event_resp: u8,
    pub(crate) event_walked: u8,
}

/// The state of a netlist; only its library knows it.
#[repr(C)]
struct Model {
    _opaque: [u8; 0],
}

type Look<I, O> = unsafe extern "C" fn(*mut Model, *const I, *mut O);
type Clock = unsafe extern "C" fn(*mut Model);

/// A netlist and its state: what goes into its ports, and what comes out.
pub(crate) struct Entity<I, O> {
    model: NonNull<Model>,
    look: Look<I, O>,
    clock: Clock,
    free: unsafe extern "C" fn(*mut Model),
    /// Last, so that it is unloaded last.
    _library: Library,
}

/// That of `window_mmu`.
pub(crate) type Netlist = Entity<Inputs, Outputs>;

impl Netlist {
    /// Loads the library at `path`.
    pub(crate) fn load(path: &Path) -> Netlist {
        // SAFETY: both structs are laid out as in window_mmu.cpp.
        unsafe { Entity::open(path, "window_mmu") }
    }
}

impl<I, O: Default> Entity<I, O> {
    /// Loads the library at `path`, of the entity `name`.
    ///
    /// # Safety
    /// `I` and `O` are laid out as `Inputs` and `Outputs` in `rtl/lockstep/NAME.cpp`.
    pub(crate) unsafe fn open(path: &Path, name: &str) -> Entity<I, O> {
        let symbol = |what: &str| format!("{name}_{what}");
        // SAFETY: the library is made by scripts/rtl/netlists.sh from NAME.cpp, whose functions have these types, as the
        // caller says; it is kept as long as they are.
        unsafe {
            let library =
                Library::new(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let new: unsafe extern "C" fn() -> *mut Model =
                *library.get(symbol("new").as_bytes()).expect("new");
            let (look, clock) = (
                *library.get(symbol("look").as_bytes()).expect("look"),
                *library.get(symbol("clock").as_bytes()).expect("clock"),
            );
            let free = *library.get(symbol("free").as_bytes()).expect("free");
            Entity {
                model: NonNull::new(new()).expect("a model"),
                look,
                clock,
                free,
                _library: library,
            }
        }
    }

    /// What comes out of the ports while this goes in.
    pub(crate) fn look(&mut self, inputs: &I) -> O {
        let mut outputs = O::default();
        // SAFETY: the model lives until `drop`, and both structs are laid out as `open` was told.
        unsafe { (self.look)(self.model.as_ptr(), inputs, &mut outputs) };
        outputs
    }

    /// The clock rises.
    pub(crate) fn clock(&mut self) {
        // SAFETY: the model lives until `drop`.
        unsafe { (self.clock)(self.model.as_ptr()) }
    }
}

impl<I, O> Drop for Entity<I, O> {
    fn drop(&mut self) {
        // SAFETY: it was made by the library's `new`, and nobody uses it any more.
        unsafe { (self.free)(self.model.as_ptr()) }
    }
}

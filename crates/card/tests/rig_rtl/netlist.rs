//! A netlist that Verilator compiled, behind the C interface of `rtl/lockstep/window_mmu.cpp`.

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

type Look = unsafe extern "C" fn(*mut Model, *const Inputs, *mut Outputs);
type Clock = unsafe extern "C" fn(*mut Model);

/// A netlist and its state.
pub(crate) struct Netlist {
    model: NonNull<Model>,
    look: Look,
    clock: Clock,
    free: unsafe extern "C" fn(*mut Model),
    /// Last, so that it is unloaded last.
    _library: Library,
}

impl Netlist {
    /// Loads the library at `path`.
    pub(crate) fn load(path: &Path) -> Netlist {
        // SAFETY: the library is made by scripts/rtl/netlists.sh from window_mmu.cpp, whose functions have
        // these types; it is kept as long as they are.
        unsafe {
            let library =
                Library::new(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let new: unsafe extern "C" fn() -> *mut Model =
                *library.get(b"window_mmu_new").expect("new");
            let (look, clock) = (
                *library.get(b"window_mmu_look").expect("look"),
                *library.get(b"window_mmu_clock").expect("clock"),
            );
            let free = *library.get(b"window_mmu_free").expect("free");
            Netlist {
                model: NonNull::new(new()).expect("a model"),
                look,
                clock,
                free,
                _library: library,
            }
        }
    }

    /// What comes out of the ports while this goes in.
    pub(crate) fn look(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: the model lives until `drop`, and both structs are laid out as in window_mmu.cpp.
        unsafe { (self.look)(self.model.as_ptr(), inputs, &mut outputs) };
        outputs
    }

    /// The clock rises.
    pub(crate) fn clock(&mut self) {
        // SAFETY: the model lives until `drop`.
        unsafe { (self.clock)(self.model.as_ptr()) }
    }
}

impl Drop for Netlist {
    fn drop(&mut self) {
        // SAFETY: it was made by `window_mmu_new`, and nobody uses it any more.
        unsafe { (self.free)(self.model.as_ptr()) }
    }
}

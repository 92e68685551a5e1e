//! Kernels that every card has: for tests and measurements, and as examples.
//!
//! A file per subject. Sizes are in elements; "write" and "shared" say how memory is lent.
//!
//! | name | arguments | does | gives |
//! |---|---|---|---|
//! | `farside.nop` | none | nothing | 0 |
//! | `farside.increment` | write or shared `u64` | adds 1 to each | their number |
//! | `farside.sum` | read `u64` | adds them up, wrapping | the sum |
//! | `farside.touch` | write `u8` or `u64` | adds 1 to the first element in each page | their number |
//! | `farside.hold` | write `u64` | sets the first to 1, keeps its page until it is 2, 2 s at most | 0 |
//! | `farside.spin` | none | runs until it is cancelled | |
//! | `farside.wait` | none | sleeps until it is cancelled | |
//! | `farside.fill` | write `u64`, value `u64` | sets each | their number |
//! | `farside.copy` | read `u64`, write `u64` | copies; of equal length | their number |
//! | `farside.saxpy` | value `f32` a, read `f32` x, write `f32` y | y = a x + y | their number |
//! | `farside.chase` | read (of any element), value `u64` address, value `u64` steps | follows pointers | the last address |
//! | `farside.histogram` | read `u8`, 256 shared `u64` | counts each byte's value in its bin | bytes counted |

mod chase;
mod histogram;
mod idle;
mod increment;
mod memory;
mod saxpy;
mod sum;
mod touch;

use super::KernelArgs;
use crate::error::KernelError;
use crate::kernel::KernelContext;

/// A kernel that is a plain function.
pub(super) type Function = fn(&mut KernelContext, &KernelArgs) -> Result<u64, KernelError>;

/// The kernels and their names.
pub(super) fn all() -> [(&'static str, Function); 12] {
    [
        ("farside.nop", idle::nop),
        ("farside.increment", increment::increment),
        ("farside.sum", sum::sum),
        ("farside.touch", touch::touch),
        ("farside.hold", idle::hold),
        ("farside.spin", idle::spin),
        ("farside.wait", idle::wait),
        ("farside.fill", memory::fill),
        ("farside.copy", memory::copy),
        ("farside.saxpy", saxpy::saxpy),
        ("farside.chase", chase::chase),
        ("farside.histogram", histogram::histogram),
    ]
}

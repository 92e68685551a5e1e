//! The table of the workloads' kernels.

use farside::{KernelArgs, KernelContext, KernelError, Kernels};

use super::{bfs_csr, bfs_linked, chase, pagerank};

/// What a kernel is.
type Function = fn(&mut KernelContext, &KernelArgs) -> Result<u64, KernelError>;

const KERNELS: [(&str, Function); 5] = [
    (bfs_linked::KERNEL, bfs_linked::visit),
    (bfs_csr::KERNEL, bfs_csr::visit),
    (pagerank::DIVIDE, pagerank::divide_kernel),
    (pagerank::GATHER, pagerank::gather_kernel),
    (chase::KERNEL, chase::follow),
];

/// The built-in kernels and those of the workloads.
pub(crate) fn kernels() -> Kernels {
    KERNELS.into_iter().fold(Kernels::builtin(), |table, (name, function)| {
        table.with(name, function).expect("the names are sound and differ")
    })
}

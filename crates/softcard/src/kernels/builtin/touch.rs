//! One element of every page: what a fault costs.

use bytemuck::Pod;
use farside_types::PAGE_SIZE;

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::KernelArgs;
use crate::span::WriteSpan;

/// Adds 1 to the first element that lies in each page, by single words: one fault per page.
pub(super) fn touch(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(1)?;
    let element = args.records()[0].element as usize;
    if element == size_of::<u8>() {
        return touch_pages(k, &args.write::<u8>(0)?, |value| value.wrapping_add(1));
    }
    touch_pages(k, &args.write::<u64>(0)?, |value| value.wrapping_add(1))
}

fn touch_pages<T: Pod>(
    k: &mut KernelContext,
    range: &WriteSpan<T>,
    next: impl Fn(T) -> T,
) -> Result<u64, KernelError> {
    let before = (range.start() % PAGE_SIZE as u64) as usize / size_of::<T>();
    let per_page = PAGE_SIZE / size_of::<T>();
    let mut touched = 0;
    let mut index = 0;
    while index < range.len() {
        let value = k.load(range.ptr(index))?;
        k.store(range.ptr(index), next(value))?;
        touched += 1;
        // From the first element on to the beginning of the next page, then page by page.
        index += per_page - (before + index) % per_page;
    }
    Ok(touched)
}

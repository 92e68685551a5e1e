"""One virtual address space over host memory and any number of accelerators.

NumPy arrays live in memory that host and cards share: a pointer is valid everywhere, and pages move to where they
are used.

>>> import numpy as np, farside
>>> with farside.Space(cards=2) as space:
...     x = space.copy(np.arange(5000, dtype=np.float32), name="x")
...     y = space.array(5000, np.float32, name="y")
...     y.fill(1)
...     space.run("farside.saxpy", np.float32(2), farside.read(x), farside.write(y))
...     float(y[4999])
5000
9999.0

While a kernel holds an array, the program leaves it alone: what is lent by `write` is neither read nor written, what
is lent by `read` is not written, until the future is done. Two kernels that would get into each other's way are
refused with `LentError`; the program's own accesses are not checked.

The same driver runs in simulated time, under any placement scheme: `simulate` and `sweep`.
"""

from farside._arguments import Lent, read, shared, write
from farside._farside import Column, FarsideError, KernelError, LentError, __version__
from farside._future import Future
from farside._kernel import Kernel, get_include, kernel
from farside._report import Report, report_page
from farside._reproduce import Reproduction, reproduce
from farside._simulate import machine_text, machines, schemes, simulate, sweep, workloads
from farside._space import HOST, MADE, MADE_COLUMN, OwnMemory, Part, Space
from farside._table import buffers, values
from farside._trace import write_trace

__all__ = [
    "HOST",
    "MADE",
    "MADE_COLUMN",
    "Column",
    "FarsideError",
    "Future",
    "Kernel",
    "KernelError",
    "Lent",
    "LentError",
    "OwnMemory",
    "Part",
    "Report",
    "Reproduction",
    "Space",
    "__version__",
    "buffers",
    "get_include",
    "kernel",
    "machine_text",
    "machines",
    "read",
    "report_page",
    "reproduce",
    "schemes",
    "shared",
    "simulate",
    "sweep",
    "values",
    "workloads",
    "write",
    "write_trace",
]

"""Kernels in Python, which Numba compiles."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Types = tuple[Any, ...]


class Kernel:
    """A function over arrays, compiled for cards in this program: made by `kernel`."""

    def __init__(self, function: Callable[..., Any], types: Types) -> None:
        self.name = function.__name__
        self.types = types
        """NumPy's scalar types, and arrays of one dimension as `[type]`."""
        self.code = _compile(function, types)
        """Numba's function of C, which has to live while kernels run."""
        functools.update_wrapper(self, function)

    @property
    def address(self) -> int:
        """Where its code is."""
        return int(self.code.address)

    def __call__(self, *arguments: Any) -> Any:
        """The function itself, on the host: for trying it."""
        return self.__wrapped__(*arguments)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<farside.Kernel `{self.name}`>"


def get_include() -> str:
    """The folder of `farside-kernel.h`, for a C compiler: kernels in C are compiled with it."""
    return str(Path(__file__).parent / "include")


def kernel(*types: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Makes a kernel of a function by Numba.

    `types` are those of its parameters: `np.float32` for a plain value, `[np.float32]` for an array of one dimension.
    The function is called with pieces of the arrays, which are equally long, one after the other: what it does to
    an element may depend on the other arrays' elements at the same place and nothing else. A parameter with the name
    `first`, which has no type here, gets the number of the piece's first element.

    >>> import numpy as np, farside
    >>> @farside.kernel(np.float32, [np.float32], [np.float32])
    ... def saxpy(a, x, y):
    ...     for i in range(len(x)):
    ...         y[i] += a * x[i]

    Raises TypeError if the types are not those of the parameters, ImportError without Numba.
    """

    def make(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, types)

    return make


def _compile(function: Callable[..., Any], types: Types) -> Any:
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError:
        raise ImportError("farside.kernel compiles by Numba: pip install numba") from None
    parameters = list(inspect.signature(function).parameters)
    typed = [name for name in parameters if name != "first"]
    if len(typed) != len(types):
        raise TypeError(
            f"kernel `{function.__name__}` has the parameters {', '.join(typed) or '(none)'} and was given "
            f"{len(types)} types"
        )
    names: dict[str, Any] = {"carray": numba.carray, "function": numba.njit(function)}
    source = _source(parameters, dict(zip(typed, types, strict=True)), names)
    exec(compile(source, f"<kernel {function.__name__}>", "exec"), names)
    pointer = numba.types.voidptr
    signature = numba.int32(pointer, numba.types.CPointer(pointer), numba.uint64, numba.uint64)
    return numba.cfunc(signature)(names["body"])


def _source(parameters: list[str], types: dict[str, Any], names: dict[str, Any]) -> str:
    """A `farside_body` that calls `function`; what it refers to comes into `names`."""
    arguments, values, pieces = [], 0, 0
    for name in parameters:
        if name == "first":
            arguments.append("first")
            continue
        given = types[name]
        is_array = isinstance(given, list)
        if is_array and len(given) != 1:
            raise TypeError(f"the type of `{name}` is {given}; an array's is a list of one type, like [np.float32]")
        dtype = np.dtype(given[0] if is_array else given)
        if dtype.kind not in "iufb" or dtype.itemsize > 8:
            raise TypeError(f"the type of `{name}` is {dtype}; kernels take integers and floats of at most 8 bytes")
        names[f"type_{name}"] = dtype
        if is_array:
            arguments.append(f"carray(pieces[{pieces}], (int(count),), type_{name})")
            pieces += 1
        else:
            # A value lies at the beginning of its word of eight bytes.
            at = values * 8 // dtype.itemsize
            arguments.append(f"carray(user, ({at + 1},), type_{name})[{at}]")
            values += 1
    if pieces == 0:
        raise TypeError("a kernel has at least one array among its parameters")
    return f"""
def body(user, pieces, first, count):
    try:
        function({", ".join(arguments)})
    except Exception:
        return 1
    return 0
"""

"""Matrices of callers as CSR arrays."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _ellect
from ._errors import ArgumentError, InputError, KindError, RepairedWarning

#: Anything that `csr_of` accepts; the types of optional packages cannot be named here.
MatrixLike = Any

_PRECISIONS: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
_NAMES = {dtype: name for name, dtype in _PRECISIONS.items()}


def dtype_of(precision: str) -> np.dtype[Any]:
    """Return the NumPy type of a precision."""
    return _PRECISIONS[precision]


def check_precision(precision: str | None) -> None:
    """Raise an exception unless this is None or the name of a precision."""
    if precision is not None and precision not in _PRECISIONS:
        raise ArgumentError(f"precision is {precision!r}; it must be 'f32' or 'f64'")


def root(thing: object) -> str:
    """Return the name of the top-level package that defines the type of an object."""
    return type(thing).__module__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Csr:
    """CSR arrays of one matrix, on the host or on a GPU."""

    data: Any
    indices: Any
    indptr: Any
    shape: tuple[int, int]


#: Kinds of devices in DLPack: memory of a GPU, and memory that the driver moves to where it is used.
CUDA_DEVICES = (2, 13)


def is_on_gpu(thing: object) -> bool:
    """Tell whether an array is in the memory of a GPU."""
    package = root(thing)
    if package == "torch":
        return bool(getattr(thing, "is_cuda", False))
    # The types of some packages have the interface of CUDA for arrays on the host, too.
    if package != "cupy" and hasattr(type(thing), "__dlpack_device__"):
        return dlpack_device(thing)[0] in CUDA_DEVICES
    return hasattr(type(thing), "__cuda_array_interface__")


def dlpack_device(thing: Any) -> tuple[int, int]:
    """Return kind and index of the device that holds an array with DLPack."""
    kind, index = thing.__dlpack_device__()
    return int(kind), int(index)


def tensor_of(thing: Any, stream: int | None) -> _ellect.Tensor:
    """Take an array by DLPack.

    Its producer makes `stream`, the address of a CUDA stream, wait for what it has queued to write
    the array; None is for arrays on the host.
    """
    # Producers refuse 0, which two default streams could mean; operators run on the legacy one.
    wanted: dict[str, Any] = {} if stream is None else {"stream": stream or 1}
    try:
        capsule = thing.__dlpack__(**wanted, max_version=(1, 1))
    except TypeError:
        # Producers from before version 1 do not know this argument.
        capsule = thing.__dlpack__(**wanted)
    except BufferError as error:
        raise KindError(f"a {type(thing).__name__} cannot be used: {error}; copy it") from error
    return _ellect.Tensor(capsule)


def host_array(thing: Any) -> np.ndarray[Any, Any]:
    """Return an array on the host as a NumPy array, without a copy if it has DLPack or a buffer."""
    package = root(thing)
    if package == "torch":
        return np.asarray(thing.detach())
    if package != "numpy" and hasattr(thing, "__dlpack__"):
        return np.asarray(tensor_of(thing, None))
    return np.asarray(thing)


def writable(out: Any) -> np.ndarray[Any, Any]:
    """Return an array on the host, which is written in place, as a NumPy array."""
    if isinstance(out, np.ndarray):
        return out
    if not is_on_gpu(out):
        if root(out) == "torch" or hasattr(out, "__dlpack__"):
            return host_array(out)
        try:
            return np.asarray(memoryview(out))
        except TypeError:
            pass
    raise KindError(f"out is a {type(out).__name__}; it must be an array on the host")


def like(thing: Any, result: np.ndarray[Any, Any]) -> Any:
    """Return a new NumPy array as an array of the package of `thing`, if there is a way."""
    if root(thing) == "torch":
        import torch

        return torch.from_numpy(result)
    if hasattr(thing, "__array_namespace__"):
        space = thing.__array_namespace__()
        if hasattr(space, "from_dlpack"):
            return space.from_dlpack(result)
    return result


def parts(matrix: MatrixLike, shape: tuple[int, int] | None) -> Csr:
    """Return the CSR arrays of a matrix of any package, converted to CSR if need be."""
    if isinstance(matrix, tuple):
        if len(matrix) != 3:
            raise ArgumentError(
                f"the tuple has {len(matrix)} items; it must be (data, indices, indptr)"
            )
        if shape is None:
            raise ArgumentError(
                "shape is missing; arrays (data, indices, indptr) need shape=(nrows, ncols)"
            )
        return Csr(*matrix, (int(shape[0]), int(shape[1])))
    own: Any = getattr(matrix, "shape", shape)
    if shape is not None and tuple(own) != tuple(shape):
        raise ArgumentError(f"shape is {shape}, but the matrix has shape {tuple(own)}")
    if root(matrix) == "torch" and hasattr(matrix, "to_sparse_csr"):
        matrix = matrix.detach()
        if "sparse_csr" not in str(matrix.layout):
            matrix = matrix.to_sparse_csr()
        arrays = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
        return Csr(*arrays, (int(matrix.shape[0]), int(matrix.shape[1])))
    if hasattr(matrix, "tocsr"):
        matrix = matrix.tocsr()
        if len(matrix.shape) != 2:
            raise KindError(f"the matrix has {len(matrix.shape)} dimensions; it must have 2")
        data, indices, nnz = matrix.data, matrix.indices, matrix.nnz
        if len(data) != nnz:
            # SciPy allows spare room behind the entries.
            data, indices = data[:nnz], indices[:nnz]
        return Csr(data, indices, matrix.indptr, tuple(matrix.shape))
    raise KindError(
        f"a {type(matrix).__name__} is no sparse matrix; give a scipy.sparse, "
        "cupyx.scipy.sparse or torch.sparse_csr matrix, (data, indices, indptr) with shape, or a path; "
        "scipy.sparse.csr_array converts a dense array"
    )


def is_complex(array: Any) -> bool:
    """Tell whether an array holds complex numbers."""
    return "complex" in str(getattr(array, "dtype", ""))


def real_blocks(csr: Csr) -> Csr:
    """Return the real matrix of twice the size that stands for a complex one, on the host.

    Each entry ``a + bi`` becomes the block ``[[a, -b], [b, a]]``.
    """
    data = host_array(on_host(csr.data))
    indices, indptr = (np.asarray(on_host(one)) for one in (csr.indices, csr.indptr))
    nrows, ncols = csr.shape
    if data.ndim != 1 or indices.shape != data.shape or indptr.shape != (nrows + 1,):
        raise InputError(
            f"data has shape {data.shape}, indices {indices.shape} and indptr {indptr.shape}; a matrix "
            f"of {nrows} rows needs two lists of equal length and one of {nrows + 1} elements"
        )
    starts = indptr.astype(np.int64)
    lengths = np.diff(starts)
    if starts[0] != 0 or (lengths < 0).any() or starts[-1] != len(data):
        raise InputError("indptr must rise from 0 to the number of values")
    # Places of each block's upper half; its lower half lies a row of the real matrix further on.
    upper = 2 * (np.arange(len(data)) + np.repeat(starts[:-1], lengths))
    lower = upper + np.repeat(2 * lengths, lengths)
    values = np.empty(4 * len(data), data.real.dtype)
    values[upper], values[upper + 1] = data.real, -data.imag
    values[lower], values[lower + 1] = data.imag, data.real
    columns = np.empty(4 * len(data), np.int64)
    columns[upper] = columns[lower] = 2 * indices.astype(np.int64)
    columns[upper + 1] = columns[lower + 1] = columns[upper] + 1
    pointers = np.empty(2 * nrows + 1, np.int64)
    pointers[::2] = 4 * starts
    pointers[1::2] = 4 * starts[:-1] + 2 * lengths
    return Csr(values, columns, pointers, (2 * nrows, 2 * ncols))


def on_host(array: Any) -> Any:
    """Return a host copy of an array on a GPU; other arrays as they are."""
    if not is_on_gpu(array):
        return array.detach() if root(array) == "torch" else array
    if root(array) == "torch":
        return array.detach().cpu()
    if hasattr(array, "get"):
        return array.get()
    raise KindError(f"a {type(array).__name__} cannot be copied to the host; convert it to CuPy")


def values_of(data: Any, precision: str | None) -> np.ndarray[Any, Any]:
    """Return values as a contiguous array of float32 or float64."""
    values = host_array(on_host(data))
    if precision is not None:
        dtype = dtype_of(precision)
    elif values.dtype.newbyteorder("=") in _NAMES:
        dtype = values.dtype.newbyteorder("=")
    else:
        dtype = np.dtype(np.float64)
    # Every real type may be rounded to float64; complex numbers and objects may not.
    if values.dtype.kind not in "fiub":
        raise KindError(f"values have type {values.dtype}; they must be real numbers")
    return _plain(values, dtype)


def _plain(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if array.ndim != 1:
        raise InputError(f"an array of the matrix has {array.ndim} dimensions; it must have 1")
    return np.require(array, dtype, ["C", "A"])


def _integers(array: Any, what: str) -> np.ndarray[Any, Any]:
    given = np.asarray(on_host(array))
    if given.dtype.kind not in "iu" and given.size:
        raise KindError(f"{what} have type {given.dtype}; they must be integers")
    if given.dtype == np.uint64 and given.size and int(given.max()) > np.iinfo(np.int64).max:
        raise InputError(f"{what} are larger than 2**63")
    narrow = np.can_cast(given.dtype, np.int32)
    return _plain(given, np.dtype(np.int32 if narrow else np.int64))


def matrix_of(csr: Csr, precision: str | None) -> _ellect.Matrix:
    """Return the arrays as a valid matrix of the compiled module."""
    if min(csr.shape) < 0:
        raise InputError(f"shape is {csr.shape}; both numbers must be 0 or more")
    return _ellect.Matrix(
        values_of(csr.data, precision),
        _integers(csr.indices, "indices"),
        _integers(csr.indptr, "indptr"),
        *csr.shape,
    )


def warn_if_repaired(matrix: _ellect.Matrix, stacklevel: int) -> None:
    """Warn that a repaired copy of the caller's matrix is used."""
    if matrix.repaired is not None:
        warnings.warn(
            f"rows were not sorted or entries were repeated ({matrix.repaired} entries were summed "
            "into others): a repaired copy is used; A.sum_duplicates() repairs a SciPy matrix once",
            RepairedWarning,
            stacklevel=stacklevel + 1,
        )


def load(
    matrix: MatrixLike,
    shape: tuple[int, int] | None,
    precision: str | None,
    stacklevel: int,
) -> tuple[_ellect.Matrix, Csr | None]:
    """Return a matrix on the host, and the caller's arrays unless it is a file."""
    check_precision(precision)
    if isinstance(matrix, (str, os.PathLike)):
        return _ellect.Matrix.read(matrix, precision or "f64"), None
    csr = parts(matrix, shape)
    if is_complex(csr.data):
        csr = real_blocks(csr)
    loaded = matrix_of(csr, precision)
    warn_if_repaired(loaded, stacklevel + 1)
    return loaded, csr

"""Matrices and vectors in the memory of a GPU."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _ellect
from ._errors import ArgumentError, DeviceError, InputError, KindError, ShapeError
from ._matrix import (
    CUDA_DEVICES,
    Csr,
    check_precision,
    dlpack_device,
    dtype_of,
    is_on_gpu,
    root,
    tensor_of,
)
from ._operator import Operator

if TYPE_CHECKING:
    from ._ellect import _Use


class Array(NamedTuple):
    """An array on a GPU: address, shape, type, contiguity, and index of the GPU if it is known.

    `held` keeps the array's memory as long as this description exists.
    """

    address: int
    shape: tuple[int, ...]
    dtype: Any
    is_contiguous: bool
    gpu: int | None
    held: Any = None


def _cupy(x: Any) -> Array:
    return Array(x.data.ptr, x.shape, x.dtype, x.flags.c_contiguous, x.device.id)


_TORCH_TYPES = {"torch.float32": np.dtype(np.float32), "torch.float64": np.dtype(np.float64)}


def _torch(x: Any) -> Array:
    dtype = _TORCH_TYPES.get(str(x.dtype), x.dtype)
    return Array(x.data_ptr(), tuple(x.shape), dtype, x.is_contiguous(), x.get_device())


def _interface(x: Any) -> Array:
    """Describe an array by the CUDA array interface."""
    told = x.__cuda_array_interface__
    if told.get("mask") is not None:
        raise KindError("the array has a mask; give an array without one")
    strides, shape, dtype = told.get("strides"), told["shape"], np.dtype(told["typestr"])
    plain = tuple(
        dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))
    )
    return Array(told["data"][0], shape, dtype, strides is None or tuple(strides) == plain, None)


def _dlpack(x: Any, stream: int | None) -> Array:
    """Describe an array by DLPack; its producer makes the stream wait for the array."""
    tensor = tensor_of(x, stream)
    kind, index = tensor.device
    if kind not in CUDA_DEVICES:
        raise KindError(f"a {type(x).__name__} is on a device of another kind; copy it to the GPU")
    return Array(
        tensor.address,
        tensor.shape,
        np.dtype(tensor.format),
        tensor.contiguous,
        # The driver moves managed memory to where it is used.
        index if kind == CUDA_DEVICES[0] else None,
        tensor,
    )


def describe(x: Any, stream: int | None = None) -> Array:
    """Describe an array on a GPU, which work on `stream` reads or writes."""
    package = root(x)
    if package == "cupy":
        return _cupy(x)
    if package == "torch":
        return _torch(x)
    return _dlpack(x, stream) if hasattr(x, "__dlpack__") else _interface(x)


def gpu_of(x: Any) -> int:
    """Return the index of the GPU that holds an array; 0 if its package does not tell."""
    if root(x) not in ("cupy", "torch") and hasattr(x, "__dlpack_device__"):
        return dlpack_device(x)[1]
    return describe(x).gpu or 0


def stream_of(x: Any, gpu: int, stream: Any = None) -> int:
    """Return the address of a stream: the given one, or the current one of the array's package."""
    if stream is None:
        package = root(x)
        if package == "cupy":
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
        if package == "torch":
            return int(sys.modules["torch"].cuda.current_stream(gpu).cuda_stream)
        if hasattr(x, "__dlpack__"):
            # The array's producer orders itself before any stream that it is told; 1 is the legacy one.
            return 1
        # Version 3 of the interface names the stream that fills the array.
        return int(x.__cuda_array_interface__.get("stream") or 1)
    if isinstance(stream, int):
        return stream
    for name in ("ptr", "cuda_stream"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise KindError(
        f"stream is a {type(stream).__name__}; give a stream of CuPy or torch, or its address"
    )


def _empty(x: Any, shape: tuple[int, ...]) -> Any:
    """Return a new array of the kind and type of x, on its GPU."""
    package = root(x)
    if package == "cupy":
        return sys.modules["cupy"].empty(shape, x.dtype)
    if package == "torch":
        return x.new_empty(shape)
    # Other packages cannot be told of the stream on which the result is written.
    raise ArgumentError(f"out is missing, and no {type(x).__name__} can be made here; give out")


def _contiguous(x: Any) -> Any:
    package = root(x)
    if package == "cupy":
        return sys.modules["cupy"].ascontiguousarray(x)
    if package == "torch":
        return x.contiguous()
    raise KindError("the array is not contiguous; copy it first")


def _check(op: Operator, array: Array, what: str) -> None:
    if array.dtype != op.dtype:
        raise KindError(f"{what} has type {array.dtype}; on a GPU it must be {op.dtype}")
    gpu = op._core.gpu
    if array.gpu is not None and array.gpu != gpu:
        raise DeviceError(f"{what} is on GPU {array.gpu}; copy it to GPU {gpu}")


def _overlap(x: Array, y: Array) -> bool:
    x_end = x.address + x.dtype.itemsize * math.prod(x.shape)
    y_end = y.address + y.dtype.itemsize * math.prod(y.shape)
    return bool(x.address < y_end and y.address < x_end)


def apply(op: Operator, x: Any, out: Any, alpha: float, beta: float, stream: Any) -> Any:
    """Queue ``out = alpha A x + beta out`` for arrays on a GPU; see `Operator.apply`."""
    core = op._core
    if core.gpu is None:
        raise DeviceError("x is on a GPU, but the operator is not; prepare with device='cuda:0'")
    if len(x.shape) == 2:
        return _apply_to_columns(op, x, out, alpha, beta, stream)
    address = stream_of(x, core.gpu, stream)
    given = describe(x, address)
    nrows, ncols = op.shape
    if given.shape != (ncols,):
        raise ShapeError(f"x has shape {given.shape}; it must be ({ncols},) or ({ncols}, k)")
    _check(op, given, "x")
    if not given.is_contiguous:
        x = _contiguous(x)
        given = describe(x, address)
    if out is None:
        if beta != 0.0:
            raise ArgumentError(f"beta is {beta}, but out is missing; give out, or beta=0")
        out = _empty(x, (nrows,))
        to = describe(out, address)
    else:
        if not is_on_gpu(out):
            raise KindError(f"out is a {type(out).__name__} on the host, but x is on a GPU")
        to = describe(out, address)
        if to.shape != (nrows,):
            raise ShapeError(f"out has shape {to.shape}; it must be ({nrows},)")
        _check(op, to, "out")
        if not to.is_contiguous:
            raise KindError("out is not contiguous; on a GPU it must be")
        if _overlap(given, to):
            raise ArgumentError("x and out overlap; give another out")
    core.apply_at((given.address, alpha), (to.address, beta), address, 1)
    return out


def apply_fused(
    op: Operator,
    x: tuple[Any, float],
    out: tuple[Any, float],
    dots: tuple[list[int], Any],
    add: tuple[float, Any] | None,
    stream: Any,
) -> tuple[Any, Any]:
    """Queue a product with dot products and a sum on a GPU; see `Operator.apply_fused`.

    x comes with alpha, out with beta, and the numbers of the dot products with their other vector.
    """
    core = op._core
    if core.gpu is None:
        raise DeviceError("x is on a GPU, but the operator is not; prepare with device='cuda:0'")
    nrows, ncols = op.shape
    address = stream_of(x[0], core.gpu, stream)
    y = _empty(x[0], (nrows,)) if out[0] is None else out[0]
    results = _empty(x[0], (len(dots[0]),))

    def there(vector: Any, length: int, what: str) -> Array:
        if not is_on_gpu(vector):
            raise KindError(f"{what} is a {type(vector).__name__} on the host, but x is on a GPU")
        given = describe(vector, address)
        if given.shape != (length,):
            raise ShapeError(f"{what} has shape {given.shape}; it must be ({length},)")
        _check(op, given, what)
        if not given.is_contiguous:
            raise KindError(f"{what} is not contiguous; on a GPU it must be")
        return given

    given, to = there(x[0], ncols, "x"), there(y, nrows, "out")
    z = None if dots[1] is None else there(dots[1], nrows, "the vector of dots")
    w = None if add is None else there(add[1], nrows, "w")
    read = [vector for vector in (given, z) if vector is not None]
    if any(_overlap(vector, to) for vector in read):
        raise ArgumentError("out overlaps x or the vector of dots; give another out")
    if w is not None and any(_overlap(vector, w) for vector in (*read, to)):
        raise ArgumentError("w overlaps another vector; give another w")
    core.apply_fused_at(
        (given.address, x[1]),
        (to.address, out[1]),
        dots[0],
        (0 if z is None else z.address, describe(results, address).address),
        None if w is None or add is None else (add[0], w.address),
        address,
    )
    return y, results


def _apply_to_columns(
    op: Operator, x: Any, out: Any, alpha: float, beta: float, stream: Any
) -> Any:
    nrows, ncols = op.shape
    shape = tuple(x.shape)
    if shape[0] != ncols:
        raise ShapeError(f"x has shape {shape}; it must be ({ncols},) or ({ncols}, k)")
    result = _empty(x, (shape[1], nrows)).T if out is None else out
    if tuple(result.shape) != (nrows, shape[1]):
        raise ShapeError(f"out has shape {tuple(result.shape)}; it must be ({nrows}, {shape[1]})")
    columns = _contiguous(x.T)
    for column in range(shape[1]):
        apply(op, columns[column], result[:, column], alpha, beta, stream)
    return result


def update(op: Operator, data: Any) -> None:
    """Replace the values by those of an array on the operator's GPU."""
    stream = stream_of(data, op._core.gpu or 0)
    given = describe(data, stream)
    if op._repaired:
        raise KindError("the matrix was repaired, so new values must be on the host")
    _check(op, given, "the array of values")
    if not given.is_contiguous:
        data = _contiguous(data)
        given = describe(data, stream)
    op._core.update_at(given.address, stream)


def _valid(csr: Csr) -> Csr:
    """Return a valid matrix on the GPU with 32-bit columns: this one, or a repaired copy."""
    package = root(csr.data)
    if package == "torch":
        torch = sys.modules["torch"]
        try:
            torch.sparse_csr_tensor(
                csr.indptr, csr.indices, csr.data, size=csr.shape, check_invariants=True
            )
        except RuntimeError as error:
            raise InputError(f"the matrix is not valid: {error}") from None
        return Csr(csr.data, csr.indices.to(torch.int32), csr.indptr, csr.shape)
    try:
        import cupy
        import cupyx.scipy.sparse as sparse
    except ImportError:
        raise KindError("matrices on a GPU need CuPy or torch") from None
    def in_cupy(array: Any) -> Any:
        is_foreign = root(array) != "cupy" and hasattr(array, "__dlpack__")
        return cupy.from_dlpack(array) if is_foreign else cupy.asarray(array)

    arrays = tuple(in_cupy(array) for array in (csr.data, csr.indices, csr.indptr))
    data, indices, indptr = arrays
    count = len(data)
    ends = (int(indptr[0]), int(indptr[-1])) if len(indptr) == csr.shape[0] + 1 else None
    if ends != (0, count) or len(indices) != count:
        raise InputError(f"indptr must have {csr.shape[0] + 1} entries, from 0 to {count}")
    if count and not 0 <= int(indices.min()) <= int(indices.max()) < csr.shape[1]:
        raise InputError(f"indices must be from 0 to {csr.shape[1] - 1}")
    matrix = sparse.csr_matrix(arrays, shape=csr.shape)
    if not matrix.has_canonical_format:
        raise InputError("rows are not sorted or entries are repeated; call A.sum_duplicates()")
    return Csr(data, indices.astype(cupy.int32, copy=False), indptr, csr.shape)


def prepare_on_gpu(
    tuner: _ellect.Tuner, csr: Csr, precision: str | None, gpu: int, use: _Use
) -> Operator:
    """Prepare a matrix on its GPU without copying its values."""
    check_precision(precision)
    valid = _valid(csr)
    data = describe(valid.data)
    wanted = data.dtype if precision is None else dtype_of(precision)
    if data.dtype != wanted or data.dtype not in (np.float32, np.float64):
        raise KindError(f"values have type {data.dtype}; convert them to {precision or 'f64'}")
    if data.gpu is not None and data.gpu != gpu:
        raise DeviceError(f"the matrix is on GPU {data.gpu}; name device='cuda:{data.gpu}'")
    indptr, indices = describe(valid.indptr), describe(valid.indices)
    if not (data.is_contiguous and indptr.is_contiguous and indices.is_contiguous):
        raise KindError("an array of the matrix is not contiguous; copy the matrix")
    core = tuner.prepare_on_gpu(
        (indptr.address, indices.address, data.address),
        (*csr.shape, data.shape[0]),
        str(indptr.dtype).endswith("int64"),
        "f32" if data.dtype == np.float32 else "f64",
        stream_of(valid.data, gpu),
        use,
    )
    # The operator keeps `valid`, whose arrays its products may read.
    return Operator(tuner, core, use, valid, None)

"""Vectors of any package: DLPack, buffers, strides, and wrong ones."""

import array
import gc
import threading

import array_api_strict
import ellect
import numpy as np
import pytest
import scipy.sparse as sparse
from ellect import _ellect
from ellect._operator import Operator
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import CPU, CUDA, MANAGED, ROCM, FakeGpu, Producer


def whole(size, dtype, seed):
    """Return random small whole numbers, whose sums are exact."""
    return np.random.default_rng(seed).integers(-8, 9, size).astype(dtype)


def matrix(rows, columns, seed, dtype=np.float64):
    dense = whole((rows, columns), dtype, seed)
    dense[whole((rows, columns), dtype, seed + 1) > 0] = 0
    return sparse.csr_array(dense)


@pytest.fixture(scope="module")
def A():
    return matrix(7, 9, 1)


@pytest.fixture(scope="module")
def op(A):
    return ellect.prepare(A)


def on_gpu(A, gpu=0):
    """Return an operator whose compiled part is a stand-in for one on a GPU."""
    core = FakeGpu(A.copy(), gpu)
    return Operator(None, core, None, None, None), core


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1)])
@pytest.mark.parametrize("offset", [0, 8])
def test_tensors_are_taken_and_given_back(A, op, version, offset):
    x = whole(9, np.float64, 2)
    producer = Producer(x, version=version, offset=offset)
    assert np.array_equal(op @ producer, A @ x)
    gc.collect()
    assert producer.held == 0 and producer.streams == [None]
    strided = Producer(whole(27, np.float64, 3)[::-3], version=version)
    assert np.array_equal(op @ strided, A @ strided.array)
    several = Producer(whole((9, 2), np.float64, 4), version=version)
    assert np.array_equal(op @ several, A @ several.array)
    out = Producer(np.ones(7), version=version)
    assert op.apply(producer, out=out, alpha=2.0, beta=3.0) is out
    assert np.array_equal(out.array, 2 * (A @ x) + 3)
    gc.collect()
    assert producer.held == out.held == several.held == 0


def test_a_tensor_shows_what_it_is():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = _ellect.Tensor(Producer(x.T, (CPU, 0)).__dlpack__())
    assert (tensor.device, tensor.shape, tensor.format) == ((CPU, 0), (4, 3), "f")
    assert not tensor.contiguous and not tensor.readonly
    assert np.array_equal(np.asarray(tensor), x.T)
    assert _ellect.Tensor(Producer(x).__dlpack__()).contiguous
    for kind in "bhiqBHIQefdFD?":
        if kind == "?":
            producer = Producer(np.array([1, 0], np.uint8), code=6)
        else:
            producer = Producer(np.array([1, 0], kind))
        shown = np.asarray(_ellect.Tensor(producer.__dlpack__()))
        assert shown.dtype == np.dtype(kind) and list(shown) == [1, 0]
    empty = np.asarray(_ellect.Tensor(Producer(np.empty((0, 3))).__dlpack__()))
    assert empty.shape == (0, 3)
    sealed = _ellect.Tensor(Producer(x, version=(1, 0), flags=1).__dlpack__(max_version=(1, 0)))
    assert sealed.readonly and not np.asarray(sealed).flags.writeable


def test_wrong_tensors_are_named(op):
    x = whole(9, np.float64, 2)
    with pytest.raises(ellect.ArgumentError, match=r"version 2\.0"):
        op @ Producer(x, version=(2, 0))
    with pytest.raises(ellect.ArgumentError, match="DLPack type 4, 16 bits"):
        op @ Producer(x.astype(np.float16), code=4)
    with pytest.raises(ellect.ArgumentError, match="read-only"):
        op.apply(x, out=Producer(np.ones(7), version=(1, 0), flags=1))
    with pytest.raises(ellect.ShapeError):
        op @ Producer(x[:5])
    capsule = Producer(x).__dlpack__()
    _ellect.Tensor(capsule)
    for used in (capsule, 3):
        with pytest.raises(ellect.ArgumentError, match="unused capsule"):
            _ellect.Tensor(used)
    sealed = x.copy()
    sealed.flags.writeable = False

    class Refusing(Producer):
        def __dlpack__(self, **_):
            raise BufferError("it is sealed")

    with pytest.raises(ellect.KindError, match="sealed"):
        op @ Refusing(x)


def test_the_result_is_of_the_package_of_x(A, op):
    x = array_api_strict.asarray(whole(9, np.float64, 5))
    y = op @ x
    assert isinstance(y, type(x))
    assert np.array_equal(np.from_dlpack(y), A @ np.from_dlpack(x))
    numbers = array.array("d", range(9))
    assert isinstance(op @ numbers, np.ndarray)
    assert np.array_equal(op @ memoryview(numbers), A @ np.arange(9.0))
    out = array.array("d", bytes(56))
    assert op.apply(numbers, out=out) is out
    assert np.array_equal(np.asarray(out), A @ np.arange(9.0))
    for wrong in ([0.0] * 7, 3):
        with pytest.raises(ellect.KindError, match="array on the host"):
            op.apply(numbers, out=wrong)


def test_tensors_on_a_gpu_are_told_the_stream(A):
    op, core = on_gpu(A)
    x, out = Producer(whole(9, np.float64, 6), (CUDA, 0)), Producer(np.ones(7), (CUDA, 0))
    for stream, told in ((None, 1), (0, 1), (2, 2), (0x7F00, 0x7F00)):
        out.array[...] = 1
        assert op.apply(x, out=out, alpha=2.0, beta=-1.0, stream=stream) is out
        assert np.array_equal(out.array, 2 * (A @ x.array) - 1)
        assert x.streams[-1] == out.streams[-1] == told
        assert core.streams[-1] == (1 if stream is None else stream)
    gc.collect()
    assert x.held == out.held == 0
    managed = Producer(x.array, (MANAGED, 0), version=(1, 0))
    assert op.apply(managed, out=out) is out and np.array_equal(out.array, A @ x.array)
    op.update_values(Producer(2 * A.data, (CUDA, 0)))
    op.apply(x, out=out)
    assert np.array_equal(out.array, 2 * (A @ x.array))


def test_wrong_tensors_on_a_gpu_are_named(A):
    op, _ = on_gpu(A)
    x, out = Producer(np.ones(9), (CUDA, 0)), Producer(np.ones(7), (CUDA, 0))
    with pytest.raises(ellect.ArgumentError, match="give out"):
        op @ x
    with pytest.raises(ellect.DeviceError, match="copy it to GPU 0"):
        op.apply(Producer(np.ones(9), (CUDA, 1)), out=out)
    with pytest.raises(ellect.KindError, match="must be float64"):
        op.apply(Producer(np.ones(9, np.float32), (CUDA, 0)), out=out)
    with pytest.raises(ellect.KindError, match="not contiguous"):
        op.apply(Producer(np.ones(18)[::2], (CUDA, 0)), out=out)
    with pytest.raises(ellect.ShapeError, match="out has shape"):
        op.apply(x, out=Producer(np.ones(6), (CUDA, 0)))
    with pytest.raises(ellect.KindError, match="on the host"):
        op.apply(x, out=np.ones(7))
    host = ellect.prepare(A)
    with pytest.raises(ellect.DeviceError, match="device='cuda:0'"):
        host.apply(x, out=out)
    with pytest.raises(ellect.KindError, match="array on the host"):
        host.apply(np.ones(9), out=out)
    with pytest.raises(ellect.KindError, match="another kind"):
        from ellect._device import describe

        describe(Producer(np.ones(9), (ROCM, 0)), 1)


class Interface:
    """An array with version 3 of the CUDA array interface and nothing else."""

    def __init__(self, array, stream=None):
        self.array, self.stream = array, stream

    @property
    def shape(self):
        return self.array.shape

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.array.shape,
            "typestr": self.array.dtype.str,
            "data": (self.array.ctypes.data, False),
            "strides": self.array.strides,
            "stream": self.stream,
            "version": 3,
        }


def test_the_array_interface_names_the_stream(A):
    op, core = on_gpu(A)
    for stream, runs_on in ((None, 1), (5, 5)):
        x, out = Interface(whole(9, np.float64, 7), stream), Interface(np.ones(7))
        op.apply(x, out=out)
        assert np.array_equal(out.array, A @ x.array) and core.streams[-1] == runs_on


steps = st.sampled_from([-3, -2, -1, 1, 2, 5])
dtypes = st.sampled_from(
    [np.float64, np.float32, np.float16, np.int8, np.int32, np.uint16, np.int64, np.bool_, ">f8"]
)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 12),
    st.integers(0, 12),
    st.sampled_from([np.float32, np.float64]),
    dtypes,
    steps,
    steps,
    st.integers(0, 3),
    st.sampled_from(["vector", "rows", "columns"]),
    st.integers(0, 1 << 20),
)
def test_vectors_of_any_layout(rows, columns, dtype, own, step, out_step, k, layout, seed):
    A = matrix(rows, columns, seed, dtype)
    op = ellect.prepare(A)
    count = 1 if layout == "vector" else k
    room = np.abs(whole((5 * columns, 5 * count), np.int64, seed)).astype(own)
    view = room[::step, ::step][:columns, :count]
    if view.shape != (columns, count):
        view = room[:columns, :count]
    x = {"vector": view[:, 0] if count else view, "rows": view, "columns": np.asfortranarray(view)}
    x = x[layout]
    wanted = A @ x.astype(dtype)
    assert np.array_equal(op @ x, wanted) and (op @ x).dtype == dtype
    out = np.ones((5 * rows, 5 * count), dtype)[::out_step, ::out_step][:rows, :count]
    out = out[:, 0] if layout == "vector" else out
    if out.shape == wanted.shape:
        op.apply(x, out=out, alpha=2.0, beta=-1.0)
        assert np.array_equal(out, 2 * wanted - 1)
    if x.dtype.kind == "f" and x.dtype.isnative:
        assert np.array_equal(op @ Producer(x), wanted)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 20), st.integers(0, 1 << 20))
def test_wrong_lengths_change_nothing(rows, columns, length, seed):
    op = ellect.prepare(matrix(rows, columns, seed))
    out = np.full(rows, 5.0)
    if length != columns:
        for wrong in (np.ones(length), np.ones((length, 2)), Producer(np.ones(length))):
            with pytest.raises(ellect.ShapeError, match="x has shape"):
                op.apply(wrong, out=out)
        with pytest.raises(ellect.ShapeError):
            op.apply(np.ones((columns, 1, 1)), out=out)
    if length != rows:
        with pytest.raises(ellect.ShapeError, match="out has shape"):
            op.apply(np.ones(columns), out=np.ones(length))
    assert np.array_equal(out, np.full(rows, 5.0))


def test_threads_multiply_update_and_close():
    A = matrix(300, 300, 8)
    x, faults, stop = whole(300, np.float64, 9), [], threading.Event()
    op = ellect.prepare(A, spmvs=10**6, updates=100)
    wanted = [scale * (A @ x) for scale in (1.0, 2.0)]
    back = [scale * (A.T @ x) for scale in (1.0, 2.0)]

    def multiply(product, right):
        while not stop.is_set():
            y = product()
            if not any(np.array_equal(y, one) for one in right):
                faults.append(y)

    op.T  # Prepared before the threads use it.
    products = [(lambda: op @ x, wanted), (lambda: op @ Producer(x), wanted)]
    threads = [threading.Thread(target=multiply, args=each) for each in 2 * products]
    for thread in threads:
        thread.start()
    for step in range(50):
        op.update_values(A.data * (1.0 + step % 2))
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert any(np.array_equal(op.T @ x, one) for one in back)

"""Checks the package on a GPU with CuPy and torch, and times the overhead of calls.

Run it after the installation of a wheel that was built with CUDA:
``pip install WHEEL && python api/python/tests/gpu.py``. Packages that are missing are named and
left out; the program fails if a check fails, or if neither package is there.
"""

import sys
import time

import ellect
import numpy as np
from matrices import poisson, tolerance


def us_of(call, wait, count=2000):
    """Return the least time of a call over three runs, in microseconds."""
    best = float("inf")
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, time.perf_counter() - start)
        wait()
    return best / count * 1e6


def check_cupy(cupy):
    import cupyx.scipy.sparse as sparse
    import cupyx.scipy.sparse.linalg as linalg

    for dtype in (np.float32, np.float64):
        A = poisson(sparse, 40, dtype)
        x = cupy.arange(A.shape[1], dtype=dtype) % 7 - 3
        for spmvs in (1, 10_000, 10_000_000):
            with ellect.prepare(A, spmvs=spmvs, updates=2) as op:
                assert isinstance(op @ x, cupy.ndarray)
                assert cupy.array_equal(op @ x, A @ x)
                out = cupy.ones(A.shape[0], dtype)
                assert op.apply(x, out=out, alpha=2.0, beta=-1.0) is out
                assert cupy.array_equal(out, 2 * (A @ x) - 1)
                assert cupy.array_equal(op.T @ x, A.T @ x)
                X = cupy.stack([x, -x, x + 1], axis=1)
                assert cupy.array_equal(op @ X, A @ X)
                assert np.array_equal(op @ cupy.asnumpy(x), cupy.asnumpy(A @ x))
                with cupy.cuda.Stream(non_blocking=True) as stream:
                    y = cupy.ones_like(x)
                    assert cupy.array_equal(op @ y, A @ y)
                    stream.synchronize()
                w = cupy.ones(A.shape[0], dtype)
                y, dots = op.apply_fused(x, dots=["x", "out"], add=(-1.0, w))
                assert cupy.array_equal(y, A @ x) and cupy.array_equal(w, 1 - y)
                assert isinstance(dots, cupy.ndarray) and dots.tolist() == [x @ y, y @ y]
                data = A.data * 2
                op.update_values(data)
                assert cupy.array_equal(op @ x, 2 * (A @ x))
        with ellect.prepare(A, spmvs=10_000) as op:
            b = A @ cupy.ones(A.shape[1], dtype)
            found, info = linalg.cg(op, b, **tolerance(linalg.cg, 1e-5))
            assert info == 0 and float(abs(found - 1).max()) < 1e-2
            try:
                op @ cupy.ones(3, dtype)
                raise AssertionError("a wrong length is refused")
            except ellect.ShapeError:
                pass

    A = poisson(sparse, 10, np.float64)
    with ellect.prepare(A, spmvs=10_000) as op:
        x, out = cupy.ones(A.shape[1]), cupy.empty(A.shape[0])
        stream = cupy.cuda.get_current_stream()
        wait = cupy.cuda.Device().synchronize
        pool = cupy.get_default_memory_pool()
        before = pool.total_bytes()
        queued = us_of(
            lambda: op._core.apply_at((x.data.ptr, 1.0), (out.data.ptr, 0.0), stream.ptr, 1), wait
        )
        given = us_of(lambda: op.apply(x, out=out, stream=stream), wait)
        assert pool.total_bytes() == before, "apply allocates nothing"
        product = us_of(lambda: op @ x, wait)
        held = []
        kept = us_of(lambda: held.append(op @ x), wait)
        vector = us_of(lambda: cupy.ndarray((A.shape[0],), x.dtype), wait)
        own = us_of(lambda: A @ x, wait)
        print(
            f"cupy: launch {queued:.2f} us, apply(out, stream) {given:.2f} us, op @ x "
            f"{product:.2f} us, op @ x whose results are kept {kept:.2f} us, a new vector "
            f"{vector:.2f} us, CuPy's own A @ x {own:.2f} us"
        )
        del held
        with cupy.cuda.Stream(non_blocking=True) as stream:
            op.apply(x, out=out)
            stream.begin_capture()
            op.apply(x, out=out)
            graph = stream.end_capture()
            x[...] = 2.0
            graph.launch(stream)
            stream.synchronize()
            assert cupy.array_equal(out, A @ x)


def check_results(cupy):
    """Check that a result is used for a later product only if nothing refers to it."""
    import cupyx.scipy.sparse as sparse

    A = poisson(sparse, 10, np.float64)
    x = cupy.arange(A.shape[1], dtype=np.float64)
    with ellect.prepare(A, spmvs=10_000) as op:
        wanted = A @ x
        place = (op @ x).data.ptr
        assert (op @ x).data.ptr == place, "a vector that nothing refers to is used again"
        holders = {
            "variable": lambda y: y,
            "view": lambda y: y[10:],
            "reshaped": lambda y: y.reshape(2, -1),
            "pointer": lambda y: y.data,
            "memory": lambda y: y.data.mem,
            "DLPack": lambda y: cupy.from_dlpack(y),
            "array interface": lambda y: cupy.asarray(Interface(y)),
        }
        for name, hold in holders.items():
            y = op @ x
            place, held = y.data.ptr, hold(y)
            del y
            others = [op @ (x * 0) for _ in range(5)]
            assert place not in [other.data.ptr for other in others], name
            del others
            if isinstance(held, cupy.ndarray):
                first = 10 if name == "view" else 0
                assert cupy.array_equal(held.ravel(), wanted[first:]), name
            del held
        y = op @ x
        y.shape = (2, A.shape[0] // 2)
        del y
        assert all((op @ x).shape == (A.shape[0],) for _ in range(3))
        place = (op @ x).data.ptr
        with cupy.cuda.Stream(non_blocking=True) as stream:
            assert (op @ x).data.ptr != place, "another stream"
            stream.synchronize()


class Interface:
    """A vector of another library, which keeps one of CuPy."""

    def __init__(self, vector):
        self.vector = vector
        self.__cuda_array_interface__ = vector.__cuda_array_interface__


def rectangular(cupy, rows, columns, entries, dtype):
    """Return a matrix of whole numbers with about `entries` entries at random places."""
    import cupyx.scipy.sparse as sparse

    places = np.random.default_rng(1).integers(0, rows * columns, entries)
    places = np.unique(places)
    indices = (places % columns).astype(np.int32)
    indptr = np.searchsorted(places, np.arange(rows + 1) * columns).astype(np.int32)
    data = (places % 13 - 6).astype(dtype)
    arrays = [cupy.asarray(a) for a in (data, indices, indptr)]
    return sparse.csr_matrix(tuple(arrays), shape=(rows, columns))


def check_transposes(cupy):
    for dtype in (np.float32, np.float64):
        A = rectangular(cupy, 3000, 2000, 40_000, dtype)
        x, z = (cupy.arange(n, dtype=dtype) % 7 - 3 for n in A.shape)
        for spmvs in (1, 10_000):
            with ellect.prepare(A, spmvs=spmvs, updates=2) as op:
                T = op.T
                assert T.shape == (2000, 3000) and T.T is op
                assert cupy.array_equal(T @ x, A.T @ x) and cupy.array_equal(op @ z, A @ z)
                op.update_values(A.data * 2)
                assert op.T is T and cupy.array_equal(T @ x, 2 * (A.T @ x))
    A = rectangular(cupy, 1_000_000, 800_000, 10_000_000, np.float64)
    wait = cupy.cuda.Device().synchronize
    times = []
    for _ in range(3):
        with ellect.prepare(A, spmvs=1000) as op:
            wait()
            start = time.perf_counter()
            op.T  # noqa: B018
            wait()
            there = time.perf_counter()
            matrix, _ = op._core.transposed()
            on_host = op._tuner.prepare(matrix, {**op._use})
            wait()
            times.append((there - start, time.perf_counter() - there))
            on_host.close()
    there, on_host = (min(seconds) * 1e3 for seconds in zip(*times, strict=True))
    print(
        f"transpose of {A.nnz} entries, prepared: {there:.1f} ms on the GPU, {on_host:.1f} ms by "
        "way of the host"
    )


def check_complex(cupy):
    import scipy.sparse as sparse

    for dtype, near in ((np.complex64, 1e-4), (np.complex128, 1e-12)):
        A = poisson(sparse, 20, np.float64).astype(dtype)
        A.data *= np.exp(1j * np.arange(A.nnz)).astype(dtype)
        n = np.arange(A.shape[0])
        x = (n % 7 - 3 + 1j * (n % 5)).astype(dtype)
        with ellect.prepare(A, device="cuda:0", spmvs=1_000_000, transposed=100) as op:
            products = [op @ cupy.asarray(x), op.rmatvec(cupy.asarray(x))]
            for y, wanted in zip(products, [A @ x, A.T.conj() @ x], strict=True):
                assert isinstance(y, cupy.ndarray) and y.dtype == dtype
                assert np.allclose(y.get(), wanted, near, near)
            print(f"complex, {dtype.__name__}: {op.real!r}")


def check_torch(torch):
    import scipy.sparse as sparse

    for dtype in (np.float32, np.float64):
        host = poisson(sparse, 30, dtype)
        arrays = [torch.from_numpy(a).cuda() for a in (host.indptr, host.indices, host.data)]
        A = torch.sparse_csr_tensor(*arrays, size=host.shape)
        x = torch.arange(host.shape[1], device="cuda").to(A.dtype) % 7 - 3
        wanted = torch.from_numpy(host @ x.cpu().numpy()).cuda()
        with ellect.prepare(A, spmvs=10_000, updates=1) as op:
            assert torch.equal(op @ x, wanted)
            with torch.cuda.stream(torch.cuda.Stream()) as _:
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                assert torch.equal(op @ x, wanted)
                torch.cuda.current_stream().synchronize()
            op.update_values(A.values() * 2)
            assert torch.equal(op @ x, 2 * wanted)
            out = torch.empty_like(wanted)
            op.apply(x, out=out)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                op.apply(x, out=out)
            x.fill_(1.0)
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(out, op @ x)
            print(
                f"torch {x.dtype}: apply(out) "
                f"{us_of(lambda: op.apply(x, out=out), torch.cuda.synchronize):.2f} us, op @ x "
                f"{us_of(lambda: op @ x, torch.cuda.synchronize):.2f} us"
            )


def main():
    checked = 0
    for name, check in (("cupy", check_cupy), ("torch", check_torch)):
        try:
            package = __import__(name)
        except ImportError:
            print(f"{name} is not installed and not checked")
            continue
        check(package)
        if name == "cupy":
            check_results(package)
            check_transposes(package)
            check_complex(package)
        print(f"{name} {package.__version__}: passed")
        checked += 1
    return 0 if checked else 1


if __name__ == "__main__":
    sys.exit(main())

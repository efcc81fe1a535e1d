"""Times conjugate gradients with operators of ellect and with matrices of CuPy and SciPy.

Run it after the installation of a wheel: ``python api/python/tests/figures.py --json FILE``. It
prints each figure, and writes them as JSON with the versions of the packages. CuPy's part needs a
GPU and a wheel that was built with CUDA. `taskset -c 0 python ... --only host` uses one core.
"""

import argparse
import json
import os
import statistics
import time
import timeit

import ellect
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from matrices import poisson, tolerance

ITERATIONS = 500
RUNS = 5


def medians(ways, wait):
    """Return the median seconds of each way over alternating runs, and their relative spread."""
    seconds = {name: [] for name in ways}
    for run in range(RUNS + 1):
        for name, way in ways.items():
            wait()
            start = time.perf_counter()
            way()
            wait()
            if run:  # The first one loads kernels and models.
                seconds[name].append(time.perf_counter() - start)
    return {
        name: {
            "median_s": statistics.median(times),
            "spread": (max(times) - min(times)) / statistics.median(times),
        }
        for name, times in seconds.items()
    }


def compared(name, case, base, own):
    """Print two medians and return them with their ratio as one record."""
    ratio = case[base]["median_s"] / case[own]["median_s"]
    print(
        f"{name}: {base} {case[base]['median_s']:.4f} s, {own} {case[own]['median_s']:.4f} s, "
        f"{ratio:.2f} times"
    )
    return {"case": name, "ratio": ratio, **case}


def cg_on_gpu(cupy):
    """Time CG of CuPy on 1.5 million rows; the operator's preparation counts."""
    import cupyx.scipy.sparse as sparse
    import cupyx.scipy.sparse.linalg as linalg

    wait = cupy.cuda.Device().synchronize
    for dtype in (np.float64, np.float32):
        A = poisson(sparse, 115, dtype)
        b = A @ cupy.ones(A.shape[1], dtype)
        found = {}

        def solve(name, A):
            found[name] = linalg.cg(A, b, **tolerance(linalg.cg, 1e-30), maxiter=ITERATIONS)[0]

        def prepared():
            with ellect.prepare(A, spmvs=ITERATIONS) as op:
                solve("ellect", op)

        case = medians({"cupy": lambda: solve("cupy", A), "ellect": prepared}, wait)
        off = float(abs(found["ellect"] - found["cupy"]).max())
        assert off < (1e-8 if dtype == np.float64 else 0.05), off
        with ellect.prepare(A, spmvs=ITERATIONS) as op:
            x, out = b.copy(), cupy.empty_like(b)
            choice = str(op.choice)
            product = medians(
                {
                    "cupy": lambda: [A @ x for _ in range(100)],
                    "ellect": lambda: [op.apply(x, out=out) for _ in range(100)],
                },
                wait,
            )
        name = f"cupyx cg, {A.shape[0]} rows, {np.dtype(dtype)}, {ITERATIONS} iterations"
        yield {"choice": choice, **compared(name, case, "cupy", "ellect")}
        yield compared(f"100 products, {np.dtype(dtype)}", product, "cupy", "ellect")


def cg_on_host():
    """Time CG of SciPy on a matrix of 5 million nonzeros."""
    cores = len(os.sched_getaffinity(0))
    A = poisson(scipy.sparse, 90, np.float64)
    b = A @ np.ones(A.shape[1])
    with ellect.prepare(A, device="cpu", spmvs=10_000) as op:
        ways = {
            "scipy": lambda: scipy.sparse.linalg.cg(A, b, rtol=1e-30, maxiter=100),
            "ellect": lambda: scipy.sparse.linalg.cg(op, b, rtol=1e-30, maxiter=100),
        }
        case = medians(ways, lambda: None)
        choice = str(op.choice)
    name = f"scipy cg, {A.nnz} nonzeros, {cores} cores, 100 iterations"
    yield {"choice": choice, **compared(name, case, "scipy", "ellect")}


def host_overhead():
    """Time a call on a tiny matrix."""
    A = scipy.sparse.eye(8, format="csr")
    x, out = np.ones(8), np.empty(8)
    with ellect.prepare(A, device="cpu") as op:
        for name, call in (
            ("op @ x", lambda: op @ x),
            ("op.apply(x, out=out)", lambda: op.apply(x, out=out)),
            ("A @ x of SciPy", lambda: A @ x),
        ):
            least_s = min(timeit.repeat(call, number=10_000, repeat=5)) / 10_000
            print(f"8 rows, {name}: {least_s * 1e6:.2f} us")
            yield {"case": f"8 rows on the host, {name}", "least_s": least_s}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--only", choices=("host", "gpu"), help="part to run")
    arguments = parser.parse_args()
    versions = {"ellect": ellect.__version__, "scipy": scipy.__version__, "numpy": np.__version__}
    records = []
    if arguments.only != "gpu":
        records += [*host_overhead(), *cg_on_host()]
    if arguments.only != "host":
        import cupy

        device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        versions |= {"cupy": cupy.__version__, "device": device}
        versions["driver"] = cupy.cuda.runtime.driverGetVersion()
        records += cg_on_gpu(cupy)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"versions": versions, "records": records}, file, indent=1)


if __name__ == "__main__":
    main()

"""Operators as linear operators of SciPy and pylops."""

import subprocess
import sys

import ellect
import numpy as np
import pylops
import pytest
import scipy.sparse as sparse
import scipy.sparse.linalg as linalg


@pytest.fixture(scope="module")
def A():
    random = np.random.default_rng(1)
    return (sparse.random_array((60, 40), density=0.2, rng=random)).tocsr()


@pytest.fixture(scope="module")
def op(A):
    return ellect.prepare(A, spmvs=10_000)


def test_an_operator_is_a_linear_operator_of_scipy(op):
    assert isinstance(op, linalg.LinearOperator) and isinstance(op, ellect.Operator)
    assert linalg.aslinearoperator(op) is op
    assert isinstance(op.T, linalg.LinearOperator)


def test_operators_add_and_multiply(A, op):
    dense, x, y = A.toarray(), np.arange(40.0), np.arange(60.0)
    for made, wanted in [
        (2 * op, 2 * dense),
        (op * 3.0, 3 * dense),
        (-op, -dense),
        (op + op, 2 * dense),
        (op - linalg.aslinearoperator(A), 0 * dense),
        (op.T @ op, dense.T @ dense),
        (op.H * op, dense.T @ dense),
        (linalg.aslinearoperator(A.T) @ op, dense.T @ dense),
        ((op.T @ op) ** 2, dense.T @ dense @ dense.T @ dense),
    ]:
        assert isinstance(made, linalg.LinearOperator)
        assert np.allclose(made @ x, wanted @ x)
        assert np.allclose(made.rmatvec(wanted @ x), wanted.T @ (wanted @ x))
    assert np.allclose(op(x), dense @ x) and np.allclose(op * x, dense @ x)
    assert np.allclose(y @ op, y @ dense) and np.allclose(y * op, y @ dense)


def test_solvers_that_multiply_by_the_transpose(A, op):
    b = A @ np.ones(40)
    for solve in (linalg.lsqr, linalg.lsmr):
        assert np.allclose(A @ solve(op, b, atol=1e-12, btol=1e-12)[0], b)
    for solver in ("arpack", "lobpcg", "propack"):
        own = linalg.svds(A, k=3, solver=solver, rng=1, return_singular_vectors=False)
        found = linalg.svds(op, k=3, solver=solver, rng=1, return_singular_vectors=False)
        assert np.allclose(np.sort(found), np.sort(own), rtol=1e-5), solver
    norms = linalg.onenormest(op.T @ op), linalg.onenormest(A.T @ A)
    assert np.isclose(*norms)


def test_pylops_takes_operators(A, op):
    wrapped = pylops.aslinearoperator(op)
    x = np.linspace(0.0, 1.0, 40)
    assert np.allclose(wrapped @ x, A @ x) and np.allclose(wrapped.H @ (A @ x), A.T @ (A @ x))
    both = pylops.VStack([wrapped, 2 * wrapped])
    assert np.allclose(both @ x, np.r_[A @ x, 2 * (A @ x)])
    found = pylops.optimization.basic.cgls(wrapped, A @ x, niter=200, tol=1e-14)[0]
    assert np.allclose(A @ found, A @ x)


def test_it_works_without_scipy():
    program = """
import sys
sys.modules["scipy"] = None
import ellect, numpy as np
arrays = (np.array([2.0, 3.0]), np.array([0, 1]), np.array([0, 1, 2]))
op = ellect.prepare(arrays, shape=(2, 2))
assert list(op @ np.ones(2)) == list(op.dot(np.ones(2))) == [2.0, 3.0]
for made in (lambda: op @ op, lambda: op.dot(2.0)):
    try:
        made()
        raise SystemExit("SciPy is there")
    except ellect.KindError as error:
        assert "SciPy" in str(error)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "done\n", done.stderr

"""Complex matrices, and complex vectors of real ones."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator, gmres

import ellect

RNG = np.random.default_rng(1)
CLOSE = {np.dtype(np.complex64): 1e-4, np.dtype(np.complex128): 1e-12}


def vectors(shape, dtype):
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


def matrix(nrows, ncols, dtype):
    A = sparse.random_array((nrows, ncols), density=0.1, rng=RNG, format="csr")
    A.data = vectors(len(A.data), np.complex128)
    return A.astype(dtype)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_complex_operator_multiplies_as_scipy_does(dtype):
    A = matrix(60, 40, dtype)
    close = {"rtol": CLOSE[np.dtype(dtype)], "atol": CLOSE[np.dtype(dtype)]}
    with ellect.prepare(A, spmvs=50) as op:
        assert isinstance(op, LinearOperator) and isinstance(op, ellect.ComplexOperator)
        assert (op.shape, op.dtype, op.nnz) == (A.shape, np.dtype(dtype), A.nnz)
        x, y = vectors(40, dtype), vectors(60, dtype)
        result = op @ x
        assert result.dtype == dtype
        np.testing.assert_allclose(result, A @ x, **close)
        np.testing.assert_allclose(op @ x.real, A @ x.real, **close)
        np.testing.assert_allclose(op.rmatvec(y), A.conj().T @ y, **close)
        np.testing.assert_allclose(op.H @ y, A.conj().T @ y, **close)
        np.testing.assert_allclose(op.T @ y, A.T @ y, **close)
        for X in (vectors((40, 3), dtype), np.asfortranarray(vectors((40, 3), dtype))):
            np.testing.assert_allclose(op.matmat(X), A @ X, **close)
            np.testing.assert_allclose(op @ X[::, ::2], A @ X[::, ::2], **close)
        for alpha, beta in [(2.0, -1.0), (1j, 0.5 - 1j), (1.0, 0.0)]:
            out = y.copy()
            assert op.apply(x, out=out, alpha=alpha, beta=beta) is out
            np.testing.assert_allclose(out, alpha * (A @ x) + beta * y, **close)
        np.testing.assert_allclose((2j * op + aslinearoperator(A)) @ x, (2j + 1) * (A @ x), **close)
        op.update_values(A.data * 3j)
        np.testing.assert_allclose(op @ x, 3j * (A @ x), **close)
        np.testing.assert_allclose(op.rmatvec(y), -3j * (A.conj().T @ y), **close)
        assert "ComplexOperator 60 x 40" in repr(op) and op.explain() and op.nbytes > 0


def test_adjoints_are_prepared_at_once_where_they_are_announced():
    A = matrix(30, 30, np.complex128)
    hermitian = (A + A.conj().T).tocsr()
    y = vectors(30, np.complex128)
    for B in (A, hermitian):
        op = ellect.prepare(B, spmvs=100, transposed=100)
        np.testing.assert_allclose(op.rmatvec(y), B.conj().T @ y, atol=1e-12)
    assert op.real.T is op.real


def test_a_solver_takes_a_complex_operator():
    A = (matrix(50, 50, np.complex128) + sparse.diags_array(np.full(50, 9.0 + 2j))).tocsr()
    b = vectors(50, np.complex128)
    x, info = gmres(ellect.prepare(A), b, rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(A @ x, b, atol=1e-8)


def test_arrays_of_a_complex_matrix_may_be_unsorted():
    data = np.array([1.0 + 1j, 2.0, 3j])
    A = sparse.csr_array((data, np.array([1, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    x = np.array([1.0 + 2j, -1j])
    with pytest.warns(ellect.RepairedWarning):
        op = ellect.prepare((A.data, A.indices, A.indptr), shape=(2, 2))
    np.testing.assert_allclose(op @ x, A @ x)
    op.update_values(data * 1j)
    np.testing.assert_allclose(op @ x, 1j * (A @ x))
    with pytest.warns(ellect.RepairedWarning):
        assert ellect.recommend(A, spmvs=10).spmvs == 10


def test_a_real_operator_multiplies_complex_vectors():
    A = sparse.random_array((60, 40), density=0.1, rng=RNG, format="csr")
    op = ellect.prepare(A)
    x, X, y = vectors(40, complex), vectors((40, 3), complex), vectors(60, complex)
    np.testing.assert_allclose(op @ x, A @ x, atol=1e-12)
    np.testing.assert_allclose(op @ X, A @ X, atol=1e-12)
    np.testing.assert_allclose(op.matmat(np.asfortranarray(X)), A @ X, atol=1e-12)
    out = y.copy()
    op.apply(x, out=out, alpha=2.0, beta=-1.0)
    np.testing.assert_allclose(out, 2.0 * (A @ x) - y, atol=1e-12)
    assert (op @ x.astype(np.complex64)).dtype == np.complex128


def test_wrong_uses_of_complex_operators_are_stated():
    A = matrix(6, 4, np.complex128)
    op = ellect.prepare(A)
    with pytest.raises(ellect.ShapeError, match="x has shape"):
        op @ np.ones(5)
    with pytest.raises(ellect.ShapeError, match="out has shape"):
        op.apply(np.ones(4), out=np.ones(5, complex))
    with pytest.raises(ellect.KindError, match="out has type float64; it must be complex128"):
        op.apply(np.ones(4), out=np.ones(6))
    with pytest.raises(ellect.ArgumentError, match="out is missing"):
        op.apply(np.ones(4), beta=1.0)
    with pytest.raises(ellect.ShapeError, match="1 values"):
        op.update_values(np.ones(1, complex))
    with pytest.raises(ellect.ArgumentError, match="original basis"):
        ellect.prepare(A, basis="permuted")
    with pytest.raises(ellect.InputError, match="indptr"):
        ellect.prepare((A.data, A.indices, A.indptr[:-1]), shape=(6, 4))

"""Complex matrices, which are multiplied as real matrices of twice the size.

Each entry ``a + bi`` becomes the block ``[[a, -b], [b, a]]``. A complex vector, whose real and imaginary
parts alternate in memory, is the real vector of twice the length.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np

from ._errors import ArgumentError, KindError, ShapeError
from ._matrix import Csr, host_array, is_on_gpu, on_host, real_blocks, root, writable
from ._operator import LinearOperator, Operator, VectorLike, complex_of
from ._recommendation import Recommendation


def _reals(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return contiguous complex vectors as real ones, without a copy."""
    real = x.real.dtype
    return x.view(real) if x.ndim == 1 else x.T.view(real).T


def _complexes(y: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return real vectors as the complex ones that they stand for, without a copy."""
    return y.view(dtype) if y.ndim == 1 else y.T.view(dtype).T


class ComplexOperator(LinearOperator):
    """A complex matrix in the chosen storage format; `prepare` makes it of a complex matrix.

    Where SciPy is installed, it is a ``scipy.sparse.linalg.LinearOperator`` of type complex64 or
    complex128: ``rmatvec`` multiplies by the adjoint (conjugate transpose). Vectors are arrays on the
    host, or vectors of CuPy.

    Attributes
    ----------
    shape : tuple of int
        Numbers of complex rows and columns.
    dtype : numpy.dtype
        Type of the values.
    nnz : int
        Number of complex entries.
    real : Operator
        Operator of the real matrix of twice the size.

    Examples
    --------
    >>> import ellect, numpy as np, scipy.sparse
    >>> A = scipy.sparse.csr_array(np.array([[1j, 0.0], [2.0, 1.0 - 1j]]))
    >>> op = ellect.prepare(A)
    >>> op @ np.array([1.0, 1j])
    array([0.+1.j, 3.+1.j])
    >>> op.rmatvec(np.array([1.0, 0.0]))
    array([0.-1.j, 0.+0.j])
    """

    #: NumPy leaves products with this class to it.
    __array_ufunc__ = None

    ndim = 2

    def __init__(self, real: Operator, csr: Csr) -> None:
        self.real = real
        self._csr = Csr(None, csr.indices, csr.indptr, csr.shape)
        self._count = len(csr.data)
        nrows, ncols = real.shape
        # SciPy's stub says that only its own constructor sets this, which checks it slowly.
        self.shape: tuple[int, int] = (nrows // 2, ncols // 2)  # type: ignore[misc]
        self.dtype: np.dtype[Any] = complex_of(real.dtype)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<ellect.ComplexOperator {rows} x {columns}, {self.nnz} entries, {self.dtype}>"

    @property
    def nnz(self) -> int:
        """Number of complex entries."""
        return self.real.nnz // 4

    @property
    def choice(self) -> Recommendation:
        """The choice for the real matrix."""
        return self.real.choice

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes, with those of the adjoint once it is prepared."""
        return self.real.nbytes

    def explain(self) -> str:
        """Return the reasons of the choice, one sentence a line."""
        return self.real.explain()

    def apply(
        self, x: VectorLike, out: VectorLike = None, alpha: complex = 1.0, beta: complex = 0.0
    ) -> Any:
        """Compute ``out = alpha A x + beta out``.

        Parameters
        ----------
        x : array
            Vector of ``shape[1]`` elements, real or complex, or a matrix with such columns. A CuPy
            vector must be contiguous and of the operator's type.
        out : array, optional
            Result of the operator's type; a new array if None. With ``beta=0`` it is not read.
        alpha, beta : complex
            Factors.

        Returns
        -------
        array
            `out`, or a new array.

        Raises
        ------
        ShapeError
            If a length does not match the matrix.
        KindError
            If a type cannot be used.
        """
        return self._apply(self.real, self.shape, x, out, (alpha, beta))

    def _apply(
        self,
        real: Operator,
        shape: tuple[int, int],
        x: VectorLike,
        out: VectorLike,
        factors: tuple[complex, complex],
    ) -> Any:
        alpha, beta = factors
        if out is None and beta != 0.0:
            raise ArgumentError(f"beta is {beta}, but out is missing; give out, or beta=0")
        nrows, ncols = shape
        if len(x.shape) not in (1, 2) or x.shape[0] != ncols:
            raise ShapeError(f"x has shape {tuple(x.shape)}; it must be ({ncols},) or ({ncols}, k)")
        if out is not None and tuple(out.shape) != (nrows, *x.shape[1:]):
            raise ShapeError(f"out has shape {tuple(out.shape)}; it must be {(nrows, *x.shape[1:])}")
        if is_on_gpu(x):
            return self._apply_on_gpu(real, x, out, factors)
        array = host_array(x)
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise KindError(f"x has type {array.dtype}; it must be {self.dtype} or real")
        array = np.require(array, self.dtype, ["F", "A"])
        result = _complexes(real.apply(_reals(array)), self.dtype)
        if out is None:
            return result if alpha == 1.0 else np.multiply(alpha, result, dtype=self.dtype)
        y = writable(out)
        if y.dtype != self.dtype:
            raise KindError(f"out has type {y.dtype}; it must be {self.dtype}")
        y[...] = alpha * result if beta == 0.0 else alpha * result + beta * y
        return out

    def _apply_on_gpu(
        self, real: Operator, x: Any, out: Any, factors: tuple[complex, complex]
    ) -> Any:
        """Multiply a vector of CuPy."""
        if root(x) != "cupy" or len(x.shape) != 1 or x.dtype != self.dtype:
            raise KindError(
                f"x must be a CuPy vector of type {self.dtype} or an array on the host; give its real "
                "and imaginary parts in turn to the operator 'real'"
            )
        alpha, beta = factors
        result = real.apply(x.view(real.dtype)).view(self.dtype)
        if out is None:
            return result if alpha == 1.0 else self.dtype.type(alpha) * result
        result = self.dtype.type(alpha) * result
        out[...] = result if beta == 0.0 else result + self.dtype.type(beta) * out
        return out

    def matvec(self, x: VectorLike) -> Any:
        """Return A x for a vector of shape ``(n,)`` or ``(n, 1)``."""
        if len(x.shape) == 2 and x.shape[1] != 1:
            raise ShapeError(f"x has shape {tuple(x.shape)}; matmat multiplies several vectors")
        return self.apply(x)

    def matmat(self, X: VectorLike) -> Any:
        """Return A X for a matrix of vectors."""
        if len(X.shape) != 2:
            raise ShapeError(f"X has shape {tuple(X.shape)}; matvec multiplies one vector")
        return self.apply(X)

    def rmatvec(self, x: VectorLike) -> Any:
        """Return the adjoint matrix times a vector; its first use prepares the adjoint."""
        # The transpose of the real matrix stands for the adjoint of the complex one.
        return self._apply(self.real.T, self.shape[::-1], x, None, (1.0, 0.0))

    def rmatmat(self, X: VectorLike) -> Any:
        """Return the adjoint matrix times a matrix of vectors."""
        return self.rmatvec(X)

    # Subclasses of SciPy's class define these names.
    _matvec = matvec
    _matmat = matmat
    _rmatvec = rmatvec
    _rmatmat = rmatmat

    def __matmul__(self, x: VectorLike) -> Any:
        return super().dot(x) if isinstance(x, LinearOperator) else self.apply(x)

    def dot(self, x: VectorLike) -> Any:
        """Return A x, as ``A @ x`` does; for another operator or a number, the operator A x."""
        if isinstance(x, LinearOperator) or np.isscalar(x):
            return super().dot(x)  # type: ignore[arg-type]
        return self.apply(x)

    def update_values(self, data: VectorLike) -> None:
        """Replace the values; the pattern stays.

        Parameters
        ----------
        data : array
            Complex values in the order of the matrix that was prepared.

        Raises
        ------
        ShapeError
            If there are not as many values as entries.
        """
        if len(data) != self._count:
            raise ShapeError(f"there are {len(data)} values for {self._count} entries")
        indices, indptr = self._csr.indices, self._csr.indptr
        values = real_blocks(Csr(on_host(data), indices, indptr, self.shape)).data
        self.real.update_values(values)

    def close(self) -> None:
        """Free the memory; later products raise an exception."""
        self.real.close()

    def __enter__(self) -> ComplexOperator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

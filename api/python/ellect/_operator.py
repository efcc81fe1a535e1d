"""Operators: prepared matrices that multiply vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _ellect
from ._errors import ArgumentError, KindError, RefusedError, ShapeError
from ._matrix import Csr, dtype_of, host_array, is_on_gpu, like, matrix_of, values_of, writable
from ._recommendation import Recommendation

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

    from ._ellect import _Use
else:
    try:
        from scipy.sparse.linalg import LinearOperator
    except ImportError:

        class LinearOperator:
            """Takes the place of SciPy's class where SciPy is missing."""

            def dot(self, x):
                raise KindError("sums and products of operators need SciPy; install it")


#: Numbers of the dot products with x and with the result; 2 is that with another vector.
_DOTS = {"x": 0, "out": 1}

_COMPLEX = {"f": np.dtype(np.complex64), "d": np.dtype(np.complex128)}


def complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the complex type whose parts have this real one."""
    return _COMPLEX[dtype.char]


#: A vector or a matrix of vectors; the types of optional packages cannot be named here.
VectorLike = Any


class Operator(LinearOperator):
    """A matrix in the chosen storage format; `prepare` makes it.

    Where SciPy is installed, an operator is a ``scipy.sparse.linalg.LinearOperator``: solvers take
    it, and ``2 * op + op.T`` is an operator again. Several threads may multiply with one operator.

    Vectors are NumPy arrays, CuPy arrays, torch tensors, and arrays of any other package that has
    DLPack, the CUDA array interface or buffers. The result is of the input's kind; where its package
    cannot be told to make it, that of a vector on the host is a NumPy array, and a vector on a GPU
    needs `out`. Products are computed in the operator's precision. A vector on the host of another
    real type is converted; real and imaginary parts of a complex one are multiplied together.

    Attributes
    ----------
    shape : tuple of int
        Numbers of rows and columns.
    dtype : numpy.dtype
        Type of the values.
    nnz : int
        Number of entries.

    Examples
    --------
    >>> import ellect, numpy as np, scipy.sparse
    >>> A = scipy.sparse.csr_array(np.array([[4.0, 0.0, 1.0], [0.0, 5.0, 0.0]]))
    >>> op = ellect.prepare(A, spmvs=10_000)
    >>> op @ np.array([1.0, 2.0, 3.0])
    array([ 7., 10.])
    >>> op.T @ np.ones(2)
    array([4., 5., 1.])
    >>> op.update_values(np.array([1.0, 1.0, 1.0]))
    >>> y = np.ones(2)
    >>> op.apply(np.ones(3), out=y, alpha=2.0, beta=-1.0)
    array([3., 1.])
    >>> op.close()
    """

    #: NumPy leaves products with this class to it.
    __array_ufunc__ = None

    ndim = 2

    def __init__(
        self,
        tuner: _ellect.Tuner,
        core: _ellect.Operator,
        use: _Use,
        csr: Csr | None,
        matrix: _ellect.Matrix | None,
    ) -> None:
        self._tuner = tuner
        self._core = core
        self._use = use
        # Multiplies vectors of CuPy and torch that need no conversion; it returns None for others.
        self._queue = getattr(core, "queue", None) if core.gpu is not None else None
        # SciPy's stub says that only its own constructor sets this, which checks it slowly.
        self.shape: tuple[int, int] = core.shape  # type: ignore[misc]
        self.dtype: np.dtype[Any] = dtype_of(core.precision)
        # New values come in the order of the caller's arrays, so those of a repaired matrix are
        # kept to repair new values too. Arrays on a GPU are kept because products read them.
        repaired = matrix is not None and matrix.repaired is not None
        self._csr = csr if csr is not None and (repaired or matrix is None) else None
        self._count = core.nnz if csr is None else len(csr.data)
        self._repaired = repaired
        self._transposed: Operator | None = None
        self._is_transpose_old = False
        # True once the matrix is known to be its own transpose.
        self._is_symmetric = False
        self._choice: Recommendation | None = None

    @classmethod
    def _of_both(
        cls, tuner: _ellect.Tuner, use: _Use, csr: Csr | None, matrix: _ellect.Matrix
    ) -> Operator:
        """Prepare a matrix and its transpose together."""
        core, transposed = tuner.prepare_both(matrix, use)
        operator = cls(tuner, core, use, csr, matrix)
        if transposed is None:
            operator._is_symmetric = True
        else:
            operator._take_transpose(transposed)
        return operator

    def _take_transpose(self, core: _ellect.Operator) -> Operator:
        self._is_transpose_old = False
        try:
            made = self._make_transpose(None if transpose is None else transpose._core)
        except RefusedError:
            if transpose is None:
                raise
            transpose = self._transposed = None
            made = self._make_transpose(None)
        if transpose is not None:
            transpose._is_symmetric = self._is_symmetric
        if self._is_symmetric:
            return self
        return transpose if made is None else self._take_transpose(made)  # type: ignore[return-value]

    def _make_transpose(self, old: _ellect.Operator | None) -> _ellect.Operator | None:
        """Prepare the transpose unless the matrix is symmetric, or give its values to `old`."""
        use: _Use = {**self._use, "spmvs": self._use["transposed"] or self._use["spmvs"]}
        if self._core.gpu is not None:
            found = self._core.transposed_on_gpu(self._tuner, use, old)
            if found is not None:
                self._is_symmetric, made = found
                return made
        matrix, self._is_symmetric = self._core.transposed()
        if old is not None:
            old.update_from(matrix)
            return None
        return None if self._is_symmetric else self._tuner.prepare(matrix, use)

    @property
    def H(self) -> Operator:
        """The operator of the adjoint matrix, which is the transposed one: values are real."""
        return self.T

    def transpose(self) -> Operator:  # type: ignore[override]
        """Return the operator of the transposed matrix; see `T`."""
        return self.T

    def adjoint(self) -> Operator:  # type: ignore[misc]
        """Return the operator of the adjoint matrix; see `H`."""
        return self.T

    _transpose = transpose
    _adjoint = adjoint

    def update_values(self, data: VectorLike) -> None:
        """Replace the values; the pattern stays.

        Parameters
        ----------
        data : array
            Values in the order of the matrix that was prepared: ``A.data`` of a SciPy CSR matrix.
            For a matrix that was converted to CSR, the values of ``A.tocsr()``.

        Raises
        ------
        ShapeError
            If there are not as many values as entries.
        RefusedError
            If the storage format relies on a property of the values that these lack.
        """
        shape = getattr(data, "shape", None)
        count = shape[0] if shape else len(data)
        if count != self._count:
            raise ShapeError(f"there are {count} values for {self._count} entries")
        if self._core.gpu is not None and is_on_gpu(data):
            from ._device import update

            update(self, data)
        elif self._repaired and self._csr is not None:
            csr = Csr(data, self._csr.indices, self._csr.indptr, self.shape)
            self._core.update_from(matrix_of(csr, self._core.precision))
        else:
            self._core.update(values_of(data, self._core.precision))
        self._is_transpose_old = True

    def close(self) -> None:
        """Free the memory; later products raise an exception."""
        self._core.close()
        transpose, self._transposed, self._csr = self._transposed, None, None
        if transpose is not None:
            transpose._transposed = None
            transpose.close()

    def __enter__(self) -> Operator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

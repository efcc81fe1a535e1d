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
    from scipy.sparse.linalg import LinearOperator as LinearOperator

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

_COMPLEX: dict[str, np.dtype[Any]] = {"f": np.dtype(np.complex64), "d": np.dtype(np.complex128)}


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
        use: _Use = {**self._use, "spmvs": self._use["transposed"] or self._use["spmvs"]}
        use["transposed"] = self._use["spmvs"] if self._use["transposed"] else 0
        transpose = Operator(self._tuner, core, use, None, None)
        transpose._transposed = self
        self._transposed = transpose
        return transpose

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"<ellect.Operator {rows} x {columns}, {self.nnz} entries, {self.dtype}, "
            f"{self._core.candidate}>"
        )

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return self._core.nnz

    @property
    def choice(self) -> Recommendation:
        """The choice that led to this operator."""
        if self._choice is None:
            self._choice = Recommendation.from_dict(json.loads(self._core.choice))
        return self._choice

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes, with those of the transpose once it is prepared."""
        own = self._core.layout_bytes()
        return own if self._transposed is None else own + self._transposed._core.layout_bytes()

    @property
    def permutation(self) -> np.ndarray[Any, Any] | None:
        """Order of the permuted basis, ``order[new] = old``; None in the original basis."""
        order = self._core.permutation()
        return None if order is None else np.frombuffer(order, np.uint32)

    def explain(self) -> str:
        """Return the reasons of the choice, one sentence a line."""
        return str(self.choice)

    def apply(
        self,
        x: VectorLike,
        out: VectorLike = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        stream: Any = None,
    ) -> Any:
        """Compute ``out = alpha A x + beta out``.

        Parameters
        ----------
        x : array
            Vector of ``shape[1]`` elements, or a matrix with such columns.
        out : array, optional
            Result of the operator's type; a new array if None. With ``beta=0`` it is not read.
        alpha, beta : float
            Factors.
        stream : optional
            CUDA stream of CuPy or torch, or its address, for vectors on a GPU. By default the
            current stream of CuPy or torch if x is of that package, the stream that the CUDA array
            interface names, or the legacy default stream. The product is queued on it, with neither
            an allocation (given `out` and contiguous vectors) nor a synchronisation. Arrays with
            DLPack make this stream wait for what is queued to write them; later work on `out` must
            be queued behind this stream.

        Returns
        -------
        array
            `out`, or a new array of the same kind as `x`.

        Raises
        ------
        ShapeError
            If a length does not match the matrix.
        KindError
            If a type cannot be used.
        """
        kind = type(x)
        if kind is not np.ndarray:
            if self._queue is not None:
                result = self._queue(x, out, alpha, beta, stream)
                if result is not None:
                    return result
            if is_on_gpu(x):
                from ._device import apply

                return apply(self, x, out, alpha, beta, stream)
        if stream is not None:
            raise ArgumentError("a stream is given, but x is on the host; leave stream out")
        array = x if kind is np.ndarray else host_array(x)
        if out is None:
            if beta != 0.0:
                raise ArgumentError(f"beta is {beta}, but out is missing; give out, or beta=0")
            result = self._multiply(array, None, alpha, 0.0)
            return result if kind is np.ndarray else like(x, result)
        self._multiply(array, writable(out), alpha, beta)
        return out

    def apply_fused(
        self,
        x: VectorLike,
        out: VectorLike = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        *,
        dots: Sequence[Any] = (),
        add: tuple[float, VectorLike] | None = None,
        stream: Any = None,
    ) -> tuple[Any, Any]:
        """Compute ``out = alpha A x + beta out``, and dot products and a sum with the new out.

        On a GPU, all is computed in the pass of the product where the format can, and otherwise in
        one more pass over the vectors. The first call with an operator allocates memory there: make
        one before a product is captured in a graph.

        Parameters
        ----------
        x, out, alpha, beta, stream
            As for `apply`; x is one vector.
        dots : sequence, optional
            Up to 3 dot products of the new out: ``"x"`` is that with x, of a square matrix,
            ``"out"`` that with out itself, and a vector that with it; one vector at most.
        add : tuple of float and array, optional
            ``(gamma, w)``: w, of the operator's type, becomes ``w + gamma out``.

        Returns
        -------
        tuple of arrays
            out, and the dot products in the order of `dots`: an array of the same kind as `x`,
            which is on the GPU if x is.

        Raises
        ------
        ArgumentError
            If a dot product cannot be computed, or w overlaps out; on a GPU also if out or w
            overlaps another vector.
        ShapeError
            If a length does not match the matrix.
        KindError
            If a type cannot be used.

        Examples
        --------
        >>> import ellect, numpy as np, scipy.sparse
        >>> op = ellect.prepare(scipy.sparse.csr_array(np.diag([2.0, 3.0])))
        >>> w = np.ones(2)
        >>> op.apply_fused(np.array([1.0, 2.0]), dots=["x", "out"], add=(-1.0, w))
        (array([2., 6.]), array([14., 40.]))
        >>> w
        array([-1., -5.])
        """
        kinds = [_DOTS.get(one, 2) if isinstance(one, str) else 2 for one in dots]
        vectors = [one for one, kind in zip(dots, kinds) if kind == 2]
        for one in vectors:
            if isinstance(one, str):
                raise ArgumentError(f"there is no dot product '{one}'; give 'x', 'out' or a vector")
        if len(vectors) > 1:
            raise ArgumentError(f"dots names {len(vectors)} vectors; give one at most")
        z = vectors[0] if vectors else None
        if out is None and beta != 0.0:
            raise ArgumentError(f"beta is {beta}, but out is missing; give out, or beta=0")
        if is_on_gpu(x):
            from ._device import apply_fused

            return apply_fused(self, (x, alpha), (out, beta), (kinds, z), add, stream)
        if stream is not None:
            raise ArgumentError("a stream is given, but x is on the host; leave stream out")
        nrows, ncols = self.shape
        y = np.empty(nrows, self.dtype) if out is None else self._written(out, "out")
        results = np.empty(len(kinds), self.dtype)
        self._core.apply_fused(
            (alpha, self._read(x, ncols, "x")),
            (beta, y),
            kinds,
            None if z is None else self._read(z, nrows, "the vector of dots"),
            results,
            None if add is None else (add[0], self._written(add[1], "w")),
        )
        if type(x) is np.ndarray:
            return (y if out is None else out), results
        return (like(x, y) if out is None else out), like(x, results)

    def _read(self, x: VectorLike, length: int, what: str) -> np.ndarray[Any, Any]:
        """Return a vector on the host as an array of the operator's type."""
        array = host_array(x)
        if array.shape != (length,):
            raise ShapeError(f"{what} has shape {array.shape}; it must be ({length},)")
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise KindError(f"{what} has type {array.dtype}; it must be real: multiply its parts")
        return np.require(array, self.dtype, ["C", "A"])

    def _written(self, vector: VectorLike, what: str) -> np.ndarray[Any, Any]:
        """Return a vector on the host that is written in place."""
        array = writable(vector)
        if array.shape != (self.shape[0],):
            raise ShapeError(f"{what} has shape {array.shape}; it must be ({self.shape[0]},)")
        if array.dtype != self.dtype:
            raise KindError(f"{what} has type {array.dtype}; it must be {self.dtype}")
        flags = array.flags
        if not (flags.aligned and flags.c_contiguous and flags.writeable):
            raise ArgumentError(f"{what} is not contiguous, or read-only; give an array that is written")
        return array

    def _multiply(
        self,
        x: np.ndarray[Any, Any],
        out: np.ndarray[Any, Any] | None,
        alpha: float,
        beta: float,
    ) -> np.ndarray[Any, Any]:
        nrows, ncols = self.shape
        if x.ndim not in (1, 2) or x.shape[0] != ncols:
            raise ShapeError(f"x has shape {x.shape}; it must be ({ncols},) or ({ncols}, k)")
        if x.dtype.kind == "c":
            return self._multiply_complex(x, out, alpha, beta)
        shape = (nrows, *x.shape[1:])
        if out is not None:
            if out.shape != shape:
                raise ShapeError(f"out has shape {out.shape}; it must be {shape}")
            if out.dtype != self.dtype:
                raise KindError(f"out has type {out.dtype}; it must be {self.dtype}")
        order: Literal["C", "F"] = "F" if x.flags.f_contiguous else "C"
        if x.dtype != self.dtype or not (x.flags.aligned and (x.flags.c_contiguous or order == "F")):
            if not np.can_cast(x.dtype, self.dtype, "same_kind"):
                raise KindError(f"x has type {x.dtype}; it must be real: multiply its parts")
            x = np.require(x, self.dtype, [order, "A"])
        if out is None:
            result = np.empty(shape, self.dtype, order)
            self._core_apply(x, result, alpha, beta)
            return result
        if out.flags.aligned and (out.flags.c_contiguous or out.flags.f_contiguous):
            self._core_apply(x, out, alpha, beta)
            return out
        if not out.flags.writeable:
            raise ArgumentError("out is read-only; give an array that can be written")
        copy = np.array(out, order="F")
        self._core_apply(x, copy, alpha, beta)
        out[...] = copy
        return out

    def _multiply_complex(
        self,
        x: np.ndarray[Any, Any],
        out: np.ndarray[Any, Any] | None,
        alpha: float,
        beta: float,
    ) -> np.ndarray[Any, Any]:
        """Multiply complex vectors as twice as many real ones."""
        dtype = complex_of(self.dtype)
        if not np.can_cast(x.dtype, dtype, "same_kind"):
            raise KindError(f"x has type {x.dtype}; it must be {dtype} or real")
        shape = (self.shape[0], *x.shape[1:])
        parts = np.require(x, dtype, ["C", "A"]).view(self.dtype).reshape(len(x), -1)
        result = self._multiply(parts, None, 1.0, 0.0)
        result = np.require(result, None, ["C"]).view(dtype).reshape(shape)
        if out is None:
            return result if alpha == 1.0 else np.multiply(alpha, result, dtype=dtype)
        if out.shape != shape:
            raise ShapeError(f"out has shape {out.shape}; it must be {shape}")
        if out.dtype != dtype:
            raise KindError(f"out has type {out.dtype}; it must be {dtype}")
        out[...] = alpha * result if beta == 0.0 else alpha * result + beta * out
        return out

    def _core_apply(
        self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], alpha: float, beta: float
    ) -> None:
        """Multiply arrays that are contiguous by rows or by columns."""
        columns = x.shape[1] if x.ndim == 2 else 1
        x_rows, y_rows = not x.flags.f_contiguous, not y.flags.f_contiguous
        x, y = (x if x_rows else x.T), (y if y_rows else y.T)
        self._core.apply(x, y, alpha, beta, (columns, x_rows, y_rows))

    def matvec(self, x: VectorLike) -> Any:
        """Return A x for a vector of shape ``(n,)`` or ``(n, 1)``."""
        if len(x.shape) == 2 and x.shape[1] != 1:
            raise ShapeError(f"x has shape {tuple(x.shape)}; matmat multiplies several vectors")
        return self.apply(x)

    def matmat(self, X: VectorLike) -> Any:
        """Return A X for a matrix of vectors; several formats read A once for up to 8 of them.

        X may be contiguous by rows or by columns, without a copy; the result is so, too.
        """
        if len(X.shape) != 2:
            raise ShapeError(f"X has shape {tuple(X.shape)}; matvec multiplies one vector")
        return self.apply(X)

    def rmatvec(self, x: VectorLike) -> Any:
        """Return the transposed matrix times a vector; see `T`."""
        return self.T.matvec(x)

    def rmatmat(self, X: VectorLike) -> Any:
        """Return the transposed matrix times a matrix of vectors; see `T`."""
        return self.T.matmat(X)

    # Subclasses of SciPy's class define these names, and pylops calls them.
    _matvec = matvec
    _matmat = matmat
    _rmatvec = rmatvec
    _rmatmat = rmatmat

    def __matmul__(self, x: VectorLike) -> Any:
        if self._queue is not None:
            result = self._queue(x, None, 1.0, 0.0, None)
            if result is not None:
                return result
        return super().dot(x) if isinstance(x, LinearOperator) else self.apply(x)

    def dot(self, x: VectorLike) -> Any:
        """Return A x, as ``A @ x`` does; for another operator or a number, the operator A x."""
        if isinstance(x, LinearOperator) or np.isscalar(x):
            return super().dot(x)  # type: ignore[arg-type]
        return self.apply(x)

    def __rmatmul__(self, x: VectorLike) -> Any:
        return self.T.apply(x.T).T

    # SciPy's stub promises a class that wraps an operator; this one is better.
    @property
    def T(self) -> Operator:  # type: ignore[override]
        """The operator of the transposed matrix; its first use prepares it.

        It takes memory of its own: see `nbytes`. ``prepare(A, transposed=N)`` prepares it at once. The
        operator of a symmetric matrix is its own transpose.
        """
        transpose = self._transposed
        if not self._is_transpose_old:
            if self._is_symmetric:
                return self
            if transpose is not None:
                return transpose
        try:
            made = self._make_transpose(None if transpose is None else transpose._core)
        except RefusedError:
            if transpose is None:
                raise
            transpose = self._transposed = None
            made = self._make_transpose(None)
        self._is_transpose_old = False
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

"""Tuners, and the functions that share one for each device."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

from . import _ellect
from ._errors import ArgumentError, KindError
from ._matrix import (
    Csr,
    MatrixLike,
    check_precision,
    is_complex,
    is_on_gpu,
    load,
    matrix_of,
    parts,
    real_blocks,
    warn_if_repaired,
)
from ._recommendation import Recommendation

if TYPE_CHECKING:
    from ._complex import ComplexOperator
    from ._ellect import _Use
    from ._operator import Operator


def count(what: str, number: int) -> int:
    """Return a whole number that the compiled module can take, or raise an exception."""
    try:
        whole = int(number)
    except (TypeError, ValueError):
        raise KindError(f"{what} is {number!r}; it must be a whole number") from None
    if whole != number or not 0 <= whole < 1 << 64:
        raise ArgumentError(f"{what} is {number!r}; it must be a whole number from 0 to 2**64 - 1")
    return whole


def _use(
    spmvs: int,
    transposed: int,
    vectors: int,
    updates: int,
    effort: str,
    basis: str,
    values: str,
    memory_limit: int | None,
    budget_s: float | None,
    verify: bool = False,
) -> _Use:
    return {
        "spmvs": count("spmvs", spmvs),
        "transposed": count("transposed", transposed),
        "vectors": count("vectors", vectors),
        "updates": count("updates", updates),
        "effort": effort,
        "basis": basis,
        "values": values,
        "memory_limit": None if memory_limit is None else count("memory_limit", memory_limit),
        "budget_s": None if budget_s is None else float(budget_s),
        "verify": bool(verify),
    }


class Tuner:
    """Chooses storage formats and prepares operators for one device.

    The functions `recommend` and `prepare` keep one tuner for each device; a tuner of one's own
    takes another data folder.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda:0`` for the first GPU of this machine, or the name of a profile, ``h200``
        for instance, for which the times are only predicted.
    data : path, optional
        Folder of the user's models and measurements; the usual one if None.

    Examples
    --------
    >>> import ellect, scipy.sparse
    >>> tuner = ellect.Tuner("cpu")
    >>> tuner.device
    'cpu'
    >>> with tuner.prepare(scipy.sparse.eye_array(3), spmvs=10) as op:
    ...     print(op @ [1.0, 2.0, 3.0])
    [1. 2. 3.]
    """

    def __init__(
        self, device: str = "cpu", *, data: str | os.PathLike[str] | None = None
    ) -> None:
        if not isinstance(device, str):
            raise KindError(f"device is {device!r}; it must be a name, 'cpu' for instance")
        self._core = _ellect.Tuner(device, data)
        self._name = device

    def __repr__(self) -> str:
        return f"ellect.Tuner({self._name!r})"

    @property
    def device(self) -> str:
        """Name of the device's profile."""
        return self._core.device

    @property
    def warnings(self) -> list[str]:
        """Sentences about models and databases that could not be used."""
        return self._core.warnings()

    def recommend(
        self,
        A: MatrixLike,
        *,
        shape: tuple[int, int] | None = None,
        spmvs: int = 1000,
        transposed: int = 0,
        vectors: int = 1,
        updates: int = 0,
        precision: str | None = None,
        effort: str = "predict",
        basis: str = "original",
        values: str = "exact",
        memory_limit: int | None = None,
        budget_s: float | None = None,
    ) -> Recommendation:
        """Rank all storage formats for a matrix. See `ellect.recommend`."""
        use = _use(
            spmvs, transposed, vectors, updates, effort, basis, values, memory_limit, budget_s
        )
        matrix, _ = load(A, shape, precision, 2)
        return Recommendation.from_dict(json.loads(self._core.recommend(matrix, use)))

    def features(
        self, A: MatrixLike, *, shape: tuple[int, int] | None = None
    ) -> dict[str, float]:
        """Return the features of a matrix by name. See `ellect.features`."""
        matrix, _ = load(A, shape, None, 2)
        found: dict[str, float] = json.loads(self._core.features(matrix))
        return found

    def prepare(
        self,
        A: MatrixLike,
        *,
        shape: tuple[int, int] | None = None,
        spmvs: int = 1000,
        transposed: int = 0,
        vectors: int = 1,
        updates: int = 0,
        precision: str | None = None,
        effort: str = "predict",
        basis: str = "original",
        values: str = "exact",
        memory_limit: int | None = None,
        budget_s: float | None = None,
        verify: bool = False,
    ) -> Operator | ComplexOperator:
        """Choose a format, convert the matrix and return the operator. See `ellect.prepare`."""
        use = _use(
            spmvs,
            transposed,
            vectors,
            updates,
            effort,
            basis,
            values,
            memory_limit,
            budget_s,
            verify,
        )
        if not isinstance(A, (str, os.PathLike)):
            csr = parts(A, shape)
            if is_complex(csr.data):
                return self._prepare_complex(csr, precision, use)
            if self._name.startswith("cuda:") and is_on_gpu(csr.data):
                from ._device import prepare_on_gpu

                index = int(self._name.removeprefix("cuda:"))
                return prepare_on_gpu(self._core, csr, precision, index, use)
        # Operators load SciPy's if it is installed.
        from ._operator import Operator

        matrix, csr_or_none = load(A, shape, precision, 2)
        if use["transposed"]:
            return Operator._of_both(self._core, use, csr_or_none, matrix)
        return Operator(self._core, self._core.prepare(matrix, use), use, csr_or_none, matrix)

    def _prepare_complex(self, csr: Csr, precision: str | None, use: _Use) -> ComplexOperator:
        """Prepare the real matrix of twice the size that stands for a complex one."""
        from ._complex import ComplexOperator
        from ._operator import Operator

        if use["basis"] != "original":
            raise ArgumentError(
                f"basis is {use['basis']!r}; complex matrices are multiplied in the original basis"
            )
        check_precision(precision)
        blocks = real_blocks(csr)
        matrix = matrix_of(blocks, precision)
        warn_if_repaired(matrix, 3)
        if use["transposed"]:
            real = Operator._of_both(self._core, use, blocks, matrix)
        else:
            real = Operator(self._core, self._core.prepare(matrix, use), use, blocks, matrix)
        return ComplexOperator(real, csr)


_TUNERS: dict[str, Tuner] = {}
_LOCK = threading.Lock()


def tuner_of(device: str) -> Tuner:
    """Return the tuner that the functions of the package share for a device."""
    with _LOCK:
        tuner = _TUNERS.get(device)
        if tuner is None:
            tuner = _TUNERS[device] = Tuner(device)
        return tuner


def recommend(
    A: MatrixLike,
    *,
    device: str = "cpu",
    shape: tuple[int, int] | None = None,
    spmvs: int = 1000,
    transposed: int = 0,
    vectors: int = 1,
    updates: int = 0,
    precision: str | None = None,
    effort: str = "predict",
    basis: str = "original",
    values: str = "exact",
    memory_limit: int | None = None,
    budget_s: float | None = None,
) -> Recommendation:
    """Rank all storage formats for a matrix.

    Parameters
    ----------
    A : matrix
        A ``scipy.sparse``, ``cupyx.scipy.sparse`` or ``torch.sparse_csr`` matrix, arrays
        ``(data, indices, indptr)`` with `shape`, or the path of a file (Matrix Market, ``.npz`` of
        SciPy, or JSON; also compressed). Of a complex matrix, the real matrix of twice the size is
        multiplied, in which each entry ``a + bi`` is the block ``[[a, -b], [b, a]]``.
    device : str
        ``cpu``, ``cuda:0``, or the name of a profile, ``h200`` for instance.
    shape : tuple of int, optional
        Numbers of rows and columns, for arrays.
    spmvs : int
        Expected number of products.
    transposed : int
        Expected number of products with the transpose, which has a choice of its own.
    vectors : int
        Number of vectors of each product: the columns of X in ``op @ X``.
    updates : int
        Expected number of changes of the values while the pattern stays.
    precision : {'f32', 'f64'}, optional
        Precision of the products; by default that of the values.
    effort : {'estimate', 'predict', 'measure', 'exhaustive'}
        ``measure`` times the best candidates on the device, ``exhaustive`` times all.
    basis : {'original', 'permuted'}
        ``permuted`` also allows formats that permute rows and columns.
    values : {'exact', 'f32', 'f16', 'bf16'}
        ``f32`` also allows formats that round the values of an f64 matrix to f32, while vectors and
        sums stay f64: row i of a product then differs from that of the exact values by at most
        ``2**-24 * sum(abs(A[i, j]) * abs(x[j]))``, beside the rounding of f64. Formats that store
        values in f32 without any rounding need no permission. ``f16`` and ``bf16`` allow the same
        for an f32 matrix, whose vectors and sums stay f32; the factors are ``2**-11``, for values
        of sizes from 6.2e-5 to 65504, and ``2**-8``.
    memory_limit : int, optional
        Maximum number of bytes of a format other than CSR.
    budget_s : float, optional
        Time limit of all measurements in seconds.

    Returns
    -------
    Recommendation
        The choice with its ranking and its reasons.

    Raises
    ------
    InputError
        If the matrix is not valid.
    ArgumentError
        If an argument has no legal value.

    Examples
    --------
    >>> import ellect, scipy.sparse
    >>> answer = ellect.recommend(scipy.sparse.eye_array(1000), device="h200", spmvs=10)
    >>> answer.device, answer.precision, answer.spmvs
    ('h200', 'f64', 10)
    """
    use = _use(spmvs, transposed, vectors, updates, effort, basis, values, memory_limit, budget_s)
    tuner = tuner_of(device)._core
    matrix, _ = load(A, shape, precision, 2)
    return Recommendation.from_dict(json.loads(tuner.recommend(matrix, use)))


def features(A: MatrixLike, *, shape: tuple[int, int] | None = None) -> dict[str, float]:
    """Return the features of a matrix by name, from which formats are chosen.

    `ellect.FEATURES` holds unit and meaning of each.

    Examples
    --------
    >>> import ellect, scipy.sparse
    >>> found = ellect.features(scipy.sparse.eye_array(4))
    >>> found["nnz"], found["row_nnz_max"]
    (4, 1)
    """
    matrix, _ = load(A, shape, None, 2)
    found: dict[str, float] = json.loads(tuner_of("cpu")._core.features(matrix))
    return found


def prepare(
    A: MatrixLike,
    *,
    device: str | None = None,
    shape: tuple[int, int] | None = None,
    spmvs: int = 1000,
    transposed: int = 0,
    vectors: int = 1,
    updates: int = 0,
    precision: str | None = None,
    effort: str = "predict",
    basis: str = "original",
    values: str = "exact",
    memory_limit: int | None = None,
    budget_s: float | None = None,
    verify: bool = False,
) -> Operator | ComplexOperator:
    """Choose a storage format for a matrix, convert the matrix and return the operator.

    Parameters
    ----------
    A, shape, spmvs, vectors, updates, precision, effort, basis, values, memory_limit, budget_s
        As for `recommend`. A matrix in the memory of a GPU is not copied if its format allows:
        do not change its arrays as long as the operator exists.
    transposed : int
        Expected number of products with the transpose (``rmatvec``, ``rmatmat``, ``op.T``). Over 0,
        both are prepared now and share `memory_limit`; otherwise, and for a matrix in the memory of
        a GPU, the first use of the transpose prepares it.
    device : str, optional
        ``cpu`` or ``cuda:0``; by default the device that holds the matrix.
    verify : bool
        Compare one product with CSR.

    Returns
    -------
    Operator
        The matrix, ready for products.

    Examples
    --------
    >>> import ellect, numpy as np, scipy.sparse, scipy.sparse.linalg
    >>> A = scipy.sparse.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(100, 100))
    >>> op = ellect.prepare(A, spmvs=500)
    >>> x, info = scipy.sparse.linalg.cg(op, np.ones(100))
    >>> bool(np.allclose(A @ x, np.ones(100), atol=1e-4))
    True
    """
    if device is None:
        device = "cpu"
        if not isinstance(A, (str, os.PathLike)):
            csr = parts(A, shape)
            if is_on_gpu(csr.data):
                from ._device import gpu_of

                device = f"cuda:{gpu_of(csr.data)}"
    return tuner_of(device).prepare(
        A,
        shape=shape,
        spmvs=spmvs,
        transposed=transposed,
        vectors=vectors,
        updates=updates,
        precision=precision,
        effort=effort,
        basis=basis,
        values=values,
        memory_limit=memory_limit,
        budget_s=budget_s,
        verify=verify,
    )

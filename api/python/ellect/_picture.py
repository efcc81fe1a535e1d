"""Pictures of the pattern of a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._matrix import MatrixLike, load
from ._recommendation import axes
from ._tuner import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Maximum number of cells of a picture in each direction.
_SIDE = 500


def density(
    A: MatrixLike, rows: int = 256, columns: int = 256, *, shape: tuple[int, int] | None = None
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Count the entries of a matrix in each cell of a grid.

    Cell ``[i, j]`` holds the entries ``(r, c)`` with ``r * rows // A.shape[0] == i`` and
    ``c * columns // A.shape[1] == j``.

    Parameters
    ----------
    A : matrix
        As for `ellect.recommend`.
    rows, columns : int
        Size of the grid.
    shape : tuple of int, optional
        Numbers of rows and columns of the matrix, for arrays.

    Returns
    -------
    numpy.ndarray
        Counts of shape ``(rows, columns)``.

    Examples
    --------
    >>> import ellect, scipy.sparse
    >>> ellect.density(scipy.sparse.eye_array(6), 3, 2)
    array([[2, 0],
           [1, 1],
           [0, 2]])
    """
    matrix, _ = load(A, shape, None, 2)
    return _counts(matrix, count("rows", rows), count("columns", columns))


def _counts(matrix: Any, rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    found = np.frombuffer(matrix.density(rows, columns), np.int64)
    return found.reshape(rows, columns).copy()


def spy(
    A: MatrixLike,
    ax: Axes | None = None,
    *,
    shape: tuple[int, int] | None = None,
    **options: Any,
) -> Axes:
    """Draw the pattern of a matrix; large matrices are shown by the density of their entries.

    Parameters
    ----------
    A : matrix
        As for `ellect.recommend`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; new ones if None.
    shape : tuple of int, optional
        Numbers of rows and columns of the matrix, for arrays.
    **options
        Options of ``Axes.imshow``, ``cmap`` for instance.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Their image holds the share of entries that are stored, in each cell.

    Examples
    --------
    >>> import ellect, scipy.sparse
    >>> ellect.spy(scipy.sparse.eye_array(1000)).images[0].get_array().shape
    (500, 500)
    """
    ax = axes(ax)
    matrix, _ = load(A, shape, None, 2)
    nrows, ncols = matrix.shape
    if nrows == 0 or ncols == 0:
        return ax
    # matplotlib is imported, because there are axes.
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    rows, columns = min(nrows, _SIDE), min(ncols, _SIDE)
    counts = _counts(matrix, rows, columns)
    share: Any = np.ma.masked_equal(counts, 0) / np.outer(_sizes(nrows, rows), _sizes(ncols, columns))
    options = {"cmap": "binary", "interpolation": "nearest", "aspect": "equal", **options}
    if matrix.nnz > 0:
        # The emptiest cells with entries are a tenth of the scale above white.
        low, high = float(share.min()), float(share.max())
        options = {"norm": LogNorm(low * (low / high) ** 0.1 * 0.5, high), **options}
    ax.imshow(share, extent=(-0.5, ncols - 0.5, nrows - 0.5, -0.5), **options)
    ax.xaxis.tick_top()
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks_position("both")
        axis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 5, 10], integer=True))
    return ax


def _sizes(n: int, parts: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of rows or columns that belong to each part of a grid."""
    firsts: np.ndarray[Any, np.dtype[np.int64]] = -(-np.arange(parts + 1) * n // parts)
    return np.diff(firsts)

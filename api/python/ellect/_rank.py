"""Ranks: a matrix that several processes share, each with a part of its rows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _ellect
from ._errors import ArgumentError, KindError
from ._matrix import MatrixLike, dtype_of, host_array, is_on_gpu, load, writable
from ._operator import VectorLike
from ._recommendation import Recommendation
from ._tuner import _use, count, tuner_of

#: A message: the other rank, and the bytes to send or to fill.
Message = tuple[int, bytearray]

#: A function that sends messages and fills others.
Exchange = Callable[[list[Message], list[Message]], None]


def _torch_exchange(group: Any, device: Any) -> Exchange:
    """Return an exchange by the point-to-point operations of a process group."""
    import torch
    import torch.distributed as dist

    def peer(rank: int) -> int:
        return rank if group is None else dist.get_global_rank(group, rank)

    def exchange(send: list[Message], receive: list[Message]) -> None:
        moves = []
        for rank, message in send:
            there = torch.frombuffer(message, dtype=torch.uint8).to(device)
            moves.append(dist.P2POp(dist.isend, there, peer(rank), group))
        rooms = []
        for rank, message in receive:
            room = torch.empty(len(message), dtype=torch.uint8, device=device)
            rooms.append(room)
            moves.append(dist.P2POp(dist.irecv, room, peer(rank), group))
        for work in dist.batch_isend_irecv(moves) if moves else []:
            work.wait()
        for (_, message), room in zip(receive, rooms, strict=True):
            message[:] = room.cpu().numpy().tobytes()

    return exchange


class Rank:
    """One of several processes that share a matrix, each with a part of its rows.

    All ranks make the same calls in the same order: `prepare_rows` or `prepare_whole`, products, sums.
    If one of them fails in a call, the others raise an `ExchangeError` that names it. `Rank.sockets`
    and `Rank.torch` bring an exchange; any other one is a function.

    Parameters
    ----------
    rank, size : int
        Number of this rank, counted from 0, and number of ranks.
    exchange : function
        ``exchange(send, receive)`` gets two lists of pairs of a rank and a ``bytearray``, with at most
        one pair for each other rank, in rising order. It sends each bytearray of `send`, fills each of
        `receive` in place with the message from its rank, and returns when both are done. An exchange
        that waits for a rank that has ended should fail after some time, because nothing else tells
        the other ranks.
    mode : {'auto', 'vector', 'overlap', 'naive', 'task', 'pcsr-i', 'pcsr-ii'}
        Order of exchange and products. With ``task``, another thread calls `exchange` while this one
        multiplies the entries in own columns; no other mode overlaps. ``pcsr-i`` and ``pcsr-ii`` give
        each rank all of x, and demand the split ``equal-rows`` or ``equal-nonzeros``.

    Examples
    --------
    >>> import ellect, numpy as np, scipy.sparse
    >>> rank = ellect.Rank(0, 1, lambda send, receive: None)
    >>> op = rank.prepare_whole(scipy.sparse.eye_array(3))
    >>> op @ np.array([1.0, 2.0, 3.0])
    array([1., 2., 3.])
    >>> rank.dot([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    6.0
    """

    def __init__(self, rank: int, size: int, exchange: Exchange, *, mode: str = "auto") -> None:
        if not callable(exchange):
            raise KindError(f"exchange is {exchange!r}; it must be a function of send and receive")
        self._core = _ellect.Rank(count("rank", rank), count("size", size), exchange, mode)

    @classmethod
    def sockets(
        cls, rank: int, size: int, address: str, *, timeout_s: float = 60.0, mode: str = "auto"
    ) -> Rank:
        """Connect the ranks by TCP.

        Parameters
        ----------
        rank, size, mode
            As for `Rank`.
        address : str
            Host and port at which rank 0 listens, ``127.0.0.1:29600`` for instance; the others
            connect to it. Only ranks of a trusted network may reach it.
        timeout_s : float
            Longest time to wait for the other ranks, and later for each message, in seconds.
        """
        made = cls.__new__(cls)
        made._core = _ellect.Rank.meet(
            count("rank", rank), count("size", size), address, float(timeout_s), mode
        )
        return made

    @classmethod
    def torch(cls, group: Any = None, *, device: Any = None, mode: str = "auto") -> Rank:
        """Make a rank of each process of ``torch.distributed``, which has been initialised.

        Parameters
        ----------
        group : ProcessGroup, optional
            The processes; all by default.
        device : torch.device, optional
            Where messages lie; by default the current GPU with the backend ``nccl``, else the host.
        mode
            As for `Rank`.
        """
        import torch
        import torch.distributed as dist

        if not dist.is_initialized():
            raise ArgumentError(
                "torch.distributed is not initialised; call torch.distributed.init_process_group"
            )
        if device is None:
            on_gpu = dist.get_backend(group) == "nccl"
            device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else "cpu"
        exchange = _torch_exchange(group, device)
        return cls(dist.get_rank(group), dist.get_world_size(group), exchange, mode=mode)

    def __repr__(self) -> str:
        return f"<ellect.Rank {self.rank} of {self.size}>"

    @property
    def rank(self) -> int:
        """Number of this rank, counted from 0."""
        return self._core.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._core.size

    def sum(self, values: VectorLike) -> np.ndarray[Any, Any]:
        """Return the sums of numbers over all ranks, in f64: all ranks get equal bits.

        All ranks call this together, with as many numbers.
        """
        sums = np.array(host_array(values), dtype=np.float64, order="C", ndmin=1)
        self._core.sum(sums.reshape(-1))
        return sums

    def dot(self, x: VectorLike, y: VectorLike) -> float:
        """Return the dot product of two vectors from the own elements of all ranks, in f64."""
        try:
            own = float(np.dot(host_array(x), host_array(y)))
        except Exception:
            self._core.sum(np.array([np.nan]))
            raise
        return float(self.sum(own)[0])

    def prepare_rows(
        self,
        A: MatrixLike,
        *,
        columns: int | None = None,
        device: str = "cpu",
        shape: tuple[int, int] | None = None,
        spmvs: int = 1000,
        updates: int = 0,
        precision: str | None = None,
        effort: str = "predict",
        values: str = "exact",
        memory_limit: int | None = None,
        budget_s: float | None = None,
    ) -> RankOperator:
        """Prepare the own rows of a matrix. All ranks call this together.

        Parameters
        ----------
        A : matrix
            The own rows, with all columns of the whole matrix, numbered as there: rank 0 has the first
            rows, rank 1 the next ones and so on.
        columns : int, optional
            Number of own elements of x, in the order of the ranks too; by default, the matrix is
            square, and its columns are divided like its rows.
        device : str
            ``cpu`` or ``cuda:0``; vectors are on the host, and a GPU gets copies.
        shape, spmvs, updates, precision, effort, values, memory_limit, budget_s
            As for `ellect.prepare`.
        """
        use = (spmvs, updates, effort, values, memory_limit, budget_s)
        tuner, matrix, workload = self._given(A, shape, precision, device, use)
        try:
            own = None if columns is None else count("columns", columns)
        except Exception:
            self._core.give_up()
            raise
        return RankOperator(self, self._core.prepare_rows(tuner, matrix, own, workload))

    def prepare_whole(
        self,
        A: MatrixLike,
        *,
        split: str = "equal-nonzeros",
        owners: Any = None,
        device: str = "cpu",
        shape: tuple[int, int] | None = None,
        spmvs: int = 1000,
        updates: int = 0,
        precision: str | None = None,
        effort: str = "predict",
        values: str = "exact",
        memory_limit: int | None = None,
        budget_s: float | None = None,
    ) -> RankOperator:
        """Prepare the own part of a matrix that each rank has as a whole. All ranks call this together.

        Parameters
        ----------
        A : matrix
            The whole matrix, the same on all ranks.
        split : {'equal-nonzeros', 'equal-rows', 'few-cuts'}
            Division of the rows; ``few-cuts`` is that of METIS. Columns of a square matrix are divided
            alike, those of another one into equal ranges.
        owners : sequence of int, optional
            The rank of each row, which takes the place of `split`.
        device : str
            ``cpu`` or ``cuda:0``; vectors are on the host, and a GPU gets copies.
        shape, spmvs, updates, precision, effort, values, memory_limit, budget_s
            As for `ellect.prepare`.
        """
        use = (spmvs, updates, effort, values, memory_limit, budget_s)
        tuner, matrix, workload = self._given(A, shape, precision, device, use)
        try:
            ranks = None if owners is None else [count("an owner", owner) for owner in owners]
            if ranks is not None and max(ranks, default=0) >= self.size:
                raise ArgumentError(f"an owner is {max(ranks)}, but there are {self.size} ranks")
        except Exception:
            self._core.give_up()
            raise
        core = self._core.prepare_whole(tuner, matrix, split, ranks, workload)
        return RankOperator(self, core)

    def _given(
        self,
        A: MatrixLike,
        shape: tuple[int, int] | None,
        precision: str | None,
        device: str,
        use: tuple[int, int, str, str, int | None, float | None],
    ) -> tuple[_ellect.Tuner, _ellect.Matrix, Any]:
        """Return tuner, matrix and workload; a fault is told to the other ranks."""
        try:
            spmvs, updates, effort, values, memory_limit, budget_s = use
            workload = _use(
                spmvs, 0, 1, updates, effort, "original", values, memory_limit, budget_s
            )
            return tuner_of(device)._core, load(A, shape, precision, 3)[0], workload
        except Exception:
            self._core.give_up()
            raise


class RankOperator:
    """The part of a matrix that one rank multiplies; `Rank.prepare_rows` makes it.

    Vectors hold own elements and are NumPy arrays, torch tensors, or other arrays on the host. A part on
    a GPU copies x there and y back.

    Attributes
    ----------
    shape : tuple of int
        Numbers of rows and columns of the whole matrix.
    own_shape : tuple of int
        Numbers of own rows and of own columns: the lengths of y and of x.
    dtype : numpy.dtype
        Type of values and vectors.
    nnz : int
        Number of entries in own rows.
    halo : int
        Number of elements of x that come from other ranks in each product.
    neighbours : list of int
        The ranks that they come from.
    """

    #: NumPy leaves products with this class to it.
    __array_ufunc__ = None

    ndim = 2

    def __init__(self, rank: Rank, core: _ellect.RankOperator) -> None:
        self.rank = rank
        self._core = core
        self.shape = core.shape
        self.own_shape = core.own_shape
        self.dtype = dtype_of(core.precision)
        self.nnz = core.nnz
        self.halo = core.halo
        self.neighbours = core.neighbours

    def __repr__(self) -> str:
        rows, columns = self.own_shape
        return (
            f"<ellect.RankOperator of rank {self.rank.rank}, {rows} rows, {columns} columns, "
            f"{self.nnz} entries, {self.dtype}, {self._core.candidate}>"
        )

    @property
    def choice(self) -> Recommendation:
        """The choice of the part's format, with its ranking and its reasons."""
        return Recommendation.from_dict(json.loads(self._core.choice))

    @property
    def rows(self) -> np.ndarray[Any, Any]:
        """Numbers of the own rows in the whole matrix."""
        return np.array(self._core.rows(), dtype=np.int64)

    def apply(
        self,
        x: VectorLike,
        out: Any = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> Any:
        """Compute the own elements of ``out = alpha * A @ x + beta * out``; return `out`.

        All ranks call this together. With `beta` 0, `out` is written and never read; by default, it is
        a new array.
        """
        try:
            if is_on_gpu(x):
                raise KindError("x is on a GPU; vectors of a rank are on the host: copy it")
            given = np.ascontiguousarray(host_array(x), dtype=self.dtype)
            if out is None:
                if beta != 0.0:
                    raise ArgumentError("beta is not 0, so out is read; give it")
                out = np.empty(self.own_shape[0], dtype=self.dtype)
            y = writable(out)
            scale = (float(alpha), float(beta))
        except Exception:
            self._core.give_up()
            raise
        self._core.apply(given, y, *scale)
        return out

    def __matmul__(self, x: VectorLike) -> Any:
        return self.apply(x)

    def update(self, A: MatrixLike, *, shape: tuple[int, int] | None = None) -> None:
        """Replace the values by those of a matrix with the same pattern, given as to preparation.

        All ranks call this together; those that do not fail then have the new values.
        """
        try:
            matrix, _ = load(A, shape, self._core.precision, 2)
        except Exception:
            self.rank._core.give_up()
            raise
        self._core.update_from(matrix)

"""Ranks: threads, sockets and processes that share a matrix."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import ellect
import numpy as np
import pytest
import scipy.sparse

Message = tuple[int, bytearray]


def exchanges(size: int) -> list[Callable[[list[Message], list[Message]], None]]:
    """Return the exchanges of threads of one process."""
    boxes: dict[tuple[int, int], queue.Queue[bytes]] = {
        (a, b): queue.Queue() for a in range(size) for b in range(size)
    }

    def of(own: int) -> Callable[[list[Message], list[Message]], None]:
        def exchange(send: list[Message], receive: list[Message]) -> None:
            for to, message in send:
                boxes[own, to].put(bytes(message))
            for source, message in receive:
                message[:] = boxes[source, own].get(timeout=30)

        return exchange

    return [of(own) for own in range(size)]


def on_threads(ranks: list[Callable[[], Any]]) -> list[Any]:
    """Run each function on a thread; return what it returned or raised."""
    results: list[Any] = [None] * len(ranks)

    def call(own: int) -> None:
        try:
            results[own] = ranks[own]()
        except Exception as error:
            results[own] = error

    threads = [threading.Thread(target=call, args=(own,)) for own in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "no rank waits for ever"
    return results


def on_ranks(size: int, work: Callable[[ellect.Rank], Any], mode: str = "auto") -> list[Any]:
    """Run `work` on ranks that are threads; return what each returned or raised."""
    moves = exchanges(size)

    def rank_of(own: int) -> Callable[[], Any]:
        return lambda: work(ellect.Rank(own, size, moves[own], mode=mode))

    return on_threads([rank_of(own) for own in range(size)])


def raised(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def matrix(nrows: int, ncols: int) -> scipy.sparse.csr_array:
    """Return a matrix whose products with whole numbers are exact."""
    rng = np.random.default_rng(7)
    a = scipy.sparse.random_array((nrows, ncols), density=0.05, rng=rng, format="csr")
    a.data = np.ceil(8 * a.data)
    return a


def split(n: int, size: int, own: int) -> slice:
    return slice(n * own // size, n * (own + 1) // size)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("mode", ["auto", "overlap", "naive", "task"])
def test_products_of_the_whole_matrix(size: int, mode: str) -> None:
    a = matrix(90, 90)
    x = np.arange(90.0)

    def work(rank: ellect.Rank) -> Any:
        op = rank.prepare_whole(a, split="equal-rows", spmvs=10_000)
        assert op.shape == (90, 90) and len(op.rows) == op.own_shape[0]
        y = op @ x[op.rows]
        out = np.ones(op.own_shape[0])
        assert op.apply(x[op.rows], out, alpha=2.0, beta=-3.0) is out
        return op.rows, y, out

    found = np.zeros(90)
    for rows, y, out in raised(on_ranks(size, work, mode)):
        found[rows] = y
        np.testing.assert_array_equal(out, 2 * y - 3)
    np.testing.assert_array_equal(found, a @ x)


@pytest.mark.parametrize(("mode", "division"), [("pcsr-i", "equal-rows"), ("pcsr-ii", "equal-nonzeros")])
def test_modes_that_have_all_of_x(mode: str, division: str) -> None:
    a = matrix(60, 60)
    x = np.arange(60.0)

    def work(rank: ellect.Rank) -> Any:
        with pytest.raises(ellect.ArgumentError, match=f"the mode {mode} divides the rows"):
            rank.prepare_whole(a, split="few-cuts")
        op = rank.prepare_whole(a, split=division)
        assert op.halo == 60 - op.own_shape[1]
        assert op.neighbours == [other for other in range(3) if other != rank.rank]
        return op @ x[op.rows]

    np.testing.assert_array_equal(np.concatenate(raised(on_ranks(3, work, mode))), a @ x)


def test_owners_and_precisions() -> None:
    a = matrix(50, 50).astype(np.float32)
    owners = [row % 3 for row in range(50)]

    def work(rank: ellect.Rank) -> Any:
        op = rank.prepare_whole(a, owners=owners)
        assert op.dtype == np.float32
        assert op.choice.precision == "f32"
        np.testing.assert_array_equal(op.rows, np.arange(rank.rank, 50, 3))
        return op @ np.arange(50.0)[op.rows]

    found = np.empty(50, np.float32)
    for own, y in enumerate(raised(on_ranks(3, work))):
        assert y.dtype == np.float32
        found[own::3] = y
    np.testing.assert_array_equal(found, a @ np.arange(50, dtype=np.float32))


def test_own_rows_of_a_rectangular_matrix_and_new_values() -> None:
    a = matrix(40, 70)
    x = np.arange(70.0)

    def work(rank: ellect.Rank) -> Any:
        rows, columns = split(40, 3, rank.rank), split(70, 3, rank.rank)
        own = x[columns]
        op = rank.prepare_rows(a[rows], columns=len(own), updates=1)
        y = op @ own
        op.update(2 * a[rows])
        np.testing.assert_array_equal(op @ own, 2 * y)
        assert op.own_shape == (len(y), len(own))
        dot = rank.dot(own, own)
        return y, dot, rank.sum([1.0, rank.rank])

    found = raised(on_ranks(3, work))
    np.testing.assert_array_equal(np.concatenate([y for y, _, _ in found]), a @ x)
    for _, dot, sums in found:
        assert dot == x @ x
        np.testing.assert_array_equal(sums, [3.0, 3.0])


def test_a_rank_that_fails_is_named_to_the_others() -> None:
    a = matrix(30, 30)
    dense = scipy.sparse.csr_array(np.ones((30, 30)))

    def not_prepared(rank: ellect.Rank) -> Any:
        rank.prepare_whole(a, precision="f16" if rank.rank == 1 else None)

    def not_multiplied(rank: ellect.Rank) -> Any:
        op = rank.prepare_whole(dense)
        op @ np.ones(3 if rank.rank == 1 else op.own_shape[1])

    def no_array(rank: ellect.Rank) -> Any:
        op = rank.prepare_whole(dense)
        op @ ("no numbers" if rank.rank == 1 else np.ones(op.own_shape[1]))

    def not_updated(rank: ellect.Rank) -> Any:
        rank.prepare_whole(a).update(dense if rank.rank == 1 else a)

    cases = [
        (not_prepared, ellect.ArgumentError),
        (not_multiplied, ellect.ShapeError),
        (no_array, ValueError),
        (not_updated, ellect.ShapeError),
    ]
    for work, kind in cases:
        first, own, last = on_ranks(3, work)
        assert isinstance(own, kind), (work.__name__, own)
        for other in (first, last):
            assert isinstance(other, ellect.ExchangeError), (work.__name__, other)
            assert "rank 1 could not do its part" in str(other)


def test_faults_of_an_exchange_have_its_words() -> None:
    def broken(send: list[Message], receive: list[Message]) -> None:
        raise OSError("the wire is cut")

    def short(send: list[Message], receive: list[Message]) -> None:
        for _, message in receive:
            message.clear()

    for exchange, words in [(broken, "OSError: the wire is cut"), (short, "left 0 bytes")]:
        with pytest.raises(ellect.ExchangeError, match=words):
            ellect.Rank(0, 2, exchange).sum([1.0])
    with pytest.raises(ellect.KindError, match="must be a function"):
        ellect.Rank(0, 1, "mpi")  # type: ignore[arg-type]
    with pytest.raises(ellect.ArgumentError, match="no mode is named 'both'"):
        ellect.Rank(0, 1, broken, mode="both")
    with pytest.raises(ellect.ArgumentError, match="rank 2 of 2 ranks"):
        ellect.Rank(2, 2, broken)
    with pytest.raises(ellect.ArgumentError, match="no split is named 'halves'"):
        ellect.Rank(0, 1, broken).prepare_whole(matrix(3, 3), split="halves")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_sockets_connect_ranks() -> None:
    a, address = matrix(80, 80), f"127.0.0.1:{free_port()}"

    def rank_of(own: int) -> Callable[[], Any]:
        def work() -> Any:
            rank = ellect.Rank.sockets(own, 3, address, timeout_s=30, mode="task")
            op = rank.prepare_whole(a)
            return op @ np.arange(80.0)[op.rows]

        return work

    found = raised(on_threads([rank_of(own) for own in range(3)]))
    np.testing.assert_array_equal(np.concatenate(found), a @ np.arange(80.0))
    with pytest.raises(ellect.ExchangeError, match="rank 0"):
        ellect.Rank.sockets(0, 2, f"127.0.0.1:{free_port()}", timeout_s=0.1)
    with pytest.raises(ellect.ArgumentError, match="timeout_s is -1"):
        ellect.Rank.sockets(0, 2, address, timeout_s=-1)


WITH_TORCH = """
import ellect, numpy as np, scipy.sparse, torch.distributed as dist
dist.init_process_group("gloo")
rank = ellect.Rank.torch()
a = scipy.sparse.diags_array([1.0, 2.0, 3.0], offsets=[-1, 0, 1], shape=(9, 9)).tocsr()
op = rank.prepare_whole(a)
y = op @ np.arange(9.0)[op.rows]
np.testing.assert_array_equal(y, (a @ np.arange(9.0))[op.rows])
assert op.halo > 0 and rank.dot(y, y) > 0.0
dist.destroy_process_group()
"""


def test_torch_distributed_connects_processes() -> None:
    pytest.importorskip("torch")
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", WITH_TORCH], env={**os.environ, **meeting, "RANK": str(own)}
        )
        for own in range(2)
    ]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()

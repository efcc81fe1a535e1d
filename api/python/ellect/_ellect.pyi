from collections.abc import Sequence
from os import PathLike
from typing import Any, TypedDict, final

from numpy.typing import NDArray

__all__ = [
    "CUDA",
    "VERSION",
    "Matrix",
    "Operator",
    "Tensor",
    "Tuner",
    "feature_table",
    "run_program",
]

VERSION: str
CUDA: bool

class _Use(TypedDict):
    spmvs: int
    transposed: int
    vectors: int
    updates: int
    effort: str
    basis: str
    values: str
    memory_limit: int | None
    budget_s: float | None
    verify: bool

@final
class Matrix:
    def __new__(
        cls,
        data: NDArray[Any],
        indices: NDArray[Any],
        indptr: NDArray[Any],
        nrows: int,
        ncols: int,
    ) -> Matrix: ...
    @staticmethod
    def read(path: str | PathLike[str], precision: str) -> Matrix: ...
    def density(self, rows: int, columns: int) -> bytes: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def nnz(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def repaired(self) -> int | None: ...

@final
class Operator:
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def nnz(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def candidate(self) -> str: ...
    @property
    def choice(self) -> str: ...
    @property
    def gpu(self) -> int | None: ...
    def apply(
        self,
        x: NDArray[Any],
        out: NDArray[Any],
        alpha: float,
        beta: float,
        vectors: tuple[int, bool, bool],
    ) -> None: ...
    def apply_fused(
        self,
        x: tuple[float, NDArray[Any]],
        out: tuple[float, NDArray[Any]],
        with_: list[int],
        z: NDArray[Any] | None,
        results: NDArray[Any],
        add: tuple[float, NDArray[Any]] | None,
    ) -> None: ...
    def update(self, data: NDArray[Any]) -> None: ...
    def update_from(self, matrix: Matrix) -> None: ...
    def transposed(self) -> tuple[Matrix, bool]: ...
    def layout_bytes(self) -> int: ...
    def permutation(self) -> bytes | None: ...
    def close(self) -> None: ...
    # Only in builds with CUDA.
    def apply_at(
        self, x: tuple[int, float], y: tuple[int, float], stream: int, columns: int
    ) -> None: ...
    def apply_fused_at(
        self,
        x: tuple[int, float],
        y: tuple[int, float],
        with_: list[int],
        others: tuple[int, int],
        add: tuple[float, int] | None,
        stream: int,
    ) -> None: ...
    def queue(self, x: Any, out: Any, alpha: float, beta: float, stream: Any) -> Any: ...
    def update_at(self, values: int, stream: int) -> None: ...
    def own_values(self) -> None: ...

@final
class Tensor:
    def __new__(cls, capsule: object) -> Tensor: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...
    @property
    def device(self) -> tuple[int, int]: ...
    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def format(self) -> str: ...
    @property
    def contiguous(self) -> bool: ...
    @property
    def readonly(self) -> bool: ...

@final
class Tuner:
    def __new__(cls, device: str, data: str | PathLike[str] | None) -> Tuner: ...
    @property
    def device(self) -> str: ...
    def warnings(self) -> list[str]: ...
    def recommend(self, matrix: Matrix, workload: _Use) -> str: ...
    def features(self, matrix: Matrix) -> str: ...
    def prepare(self, matrix: Matrix, workload: _Use) -> Operator: ...
    def prepare_both(
        self, matrix: Matrix, workload: _Use
    ) -> tuple[Operator, Operator | None]: ...
    # Only in builds with CUDA.
    def prepare_on_gpu(
        self,
        addresses: tuple[int, int, int],
        size: tuple[int, int, int],
        wide: bool,
        precision: str,
        stream: int,
        workload: _Use,
    ) -> Operator: ...

def feature_table() -> list[tuple[str, str, str]]: ...
def run_program(
    arguments: Sequence[str], again: tuple[str | PathLike[str], Sequence[str]]
) -> int: ...

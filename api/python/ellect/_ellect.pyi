from os import PathLike
from typing import Any, TypedDict, final

from numpy.typing import NDArray

__all__ = [
    "BASELINES",
    "CUDA",
    "VERSION",
    "Matrix",
    "Operator",
    "Tuner",
    "feature_table",
]

VERSION: str
CUDA: bool
BASELINES: list[str]

class _Use(TypedDict):
    spmvs: int
    updates: int
    effort: str
    basis: str
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
        columns: int,
    ) -> None: ...
    def update(self, data: NDArray[Any]) -> None: ...
    def update_from(self, matrix: Matrix) -> None: ...
    def transposed(self) -> Matrix: ...
    def layout_bytes(self) -> int: ...
    def permutation(self) -> bytes | None: ...
    def close(self) -> None: ...
    # Only in builds with CUDA.
    def apply_at(
        self, x: tuple[int, float], y: tuple[int, float], stream: int, columns: int
    ) -> None: ...
    def update_at(self, values: int, stream: int) -> None: ...
    def own_values(self) -> None: ...

@final
class Tuner:
    def __new__(cls, device: str, data: str | PathLike[str] | None) -> Tuner: ...
    @property
    def device(self) -> str: ...
    def warnings(self) -> list[str]: ...
    def recommend(self, matrix: Matrix, workload: _Use) -> str: ...
    def features(self, matrix: Matrix) -> str: ...
    def prepare(self, matrix: Matrix, workload: _Use) -> Operator: ...
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

"""Autotuned sparse matrix-vector products.

`recommend` ranks storage formats for a matrix, `prepare` converts it to the best one and returns an
operator for NumPy, SciPy, CuPy and torch. Names are loaded when they are first used.

Examples
--------
>>> import ellect, numpy as np, scipy.sparse
>>> A = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(4, 4))
>>> op = ellect.prepare(A, spmvs=10_000)
>>> op @ np.ones(4)
array([1., 0., 0., 1.])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._ellect import VERSION as __version__
from ._errors import (
    ArgumentError,
    DeviceError,
    EllectError,
    ExchangeError,
    FileError,
    InputError,
    InternalError,
    KindError,
    RefusedError,
    RepairedWarning,
    ServiceError,
    ShapeError,
    WisdomError,
)

if TYPE_CHECKING:
    from ._client import Client
    from ._complex import ComplexOperator
    from ._operator import Operator
    from ._picture import density, spy
    from ._rank import Rank, RankOperator
    from ._recommendation import Ranked, Recommendation, Refused
    from ._tuner import Tuner, features, prepare, recommend

    #: Unit and meaning of each feature by name.
    FEATURES: dict[str, tuple[str, str]]

# NumPy takes most of the time of an import, so modules that need it are loaded on first use.
_HOMES = {
    "Client": "_client",
    "ComplexOperator": "_complex",
    "Operator": "_operator",
    "Rank": "_rank",
    "RankOperator": "_rank",
    "Ranked": "_recommendation",
    "Recommendation": "_recommendation",
    "Refused": "_recommendation",
    "Tuner": "_tuner",
    "density": "_picture",
    "features": "_tuner",
    "prepare": "_tuner",
    "recommend": "_tuner",
    "spy": "_picture",
}

__all__ = [
    "FEATURES",
    "ArgumentError",
    "Client",
    "ComplexOperator",
    "DeviceError",
    "EllectError",
    "ExchangeError",
    "FileError",
    "InputError",
    "InternalError",
    "KindError",
    "Operator",
    "Rank",
    "RankOperator",
    "Ranked",
    "Recommendation",
    "RefusedError",
    "Refused",
    "RepairedWarning",
    "ServiceError",
    "ShapeError",
    "Tuner",
    "WisdomError",
    "__version__",
    "density",
    "features",
    "prepare",
    "recommend",
    "spy",
]


def __getattr__(name: str) -> Any:
    if name == "FEATURES":
        from ._ellect import feature_table

        found: Any = {feature: (unit, meaning) for feature, unit, meaning in feature_table()}
    elif name in _HOMES:
        from importlib import import_module

        found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__

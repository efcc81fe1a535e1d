"""A client of the HTTP service that ``ellect serve`` starts."""

from __future__ import annotations

import io
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import numpy as np

from ._errors import (
    ArgumentError,
    EllectError,
    InputError,
    KindError,
    RefusedError,
    ServiceError,
)
from ._matrix import MatrixLike, check_precision, on_host, parts, values_of
from ._recommendation import Recommendation

#: Seconds between two questions for a job.
_PAUSE_S = 0.5

_KINDS: dict[str, type[EllectError]] = {
    "argument": ArgumentError,
    "device": ArgumentError,
    "input": InputError,
    "limit": InputError,
    "refused": RefusedError,
}


class Client:
    """Asks a service for recommendations.

    Parameters
    ----------
    url : str
        Address of the service, ``http://localhost:7272`` for instance.
    timeout_s : float
        Time limit of a request in seconds, and of a measurement.

    Examples
    --------
    >>> import ellect
    >>> client = ellect.Client("http://localhost:7272")
    >>> client.recommend(generate="elasticity:60000", device="h200")  # doctest: +SKIP
    Recommendation(choice='hll:hack=32,sort=none,tpr=1,col=16', ...)
    """

    def __init__(self, url: str, *, timeout_s: float = 600.0) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ArgumentError(f"url is {url!r}; it must start with http:// or https://")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"ellect.Client({self.url!r})"

    def health(self) -> dict[str, Any]:
        """Return status, version and devices of the service."""
        return self._ask(urllib.request.Request(f"{self.url}/healthz"))

    def recommend(
        self,
        A: MatrixLike = None,
        *,
        shape: tuple[int, int] | None = None,
        precision: str | None = None,
        **options: object,
    ) -> Recommendation:
        """Ask for the ranking of all storage formats for a matrix.

        Parameters
        ----------
        A : matrix, optional
            As for `ellect.recommend`; a file is sent as it is. None with ``generate=``.
        shape : tuple of int, optional
            Numbers of rows and columns, for arrays.
        precision : {'f32', 'f64'}, optional
            Precision of the products; by default that of the values.
        **options
            Options of the service: device, spmvs, updates, effort, basis, memory_limit, budget,
            mode, top and generate.

        Returns
        -------
        Recommendation
            The answer.

        Raises
        ------
        ServiceError
            If the service cannot be reached, is busy or fails.
        InputError, ArgumentError
            If the service refuses the matrix or an option.
        """
        check_precision(precision)
        body, own = _body(A, shape)
        query = {"precision": precision or own, **options}
        pairs = {name: str(value) for name, value in query.items() if value is not None}
        address = f"{self.url}/recommend?{urllib.parse.urlencode(pairs)}"
        request = urllib.request.Request(address, data=body, method="POST")
        request.add_header("Content-Type", "application/octet-stream")
        start = time.monotonic()
        answer = self._ask(request)
        # A measurement that takes long is a job, which is asked for until it ends.
        while answer.get("status") in ("enqueued", "processing"):
            if time.monotonic() - start > self.timeout_s:
                raise ServiceError(
                    f"job {answer['id']} has not ended within {self.timeout_s} s; it goes on, and "
                    f"{self.url}/jobs/{answer['id']} has its result"
                )
            time.sleep(_PAUSE_S)
            answer = self._ask(urllib.request.Request(f"{self.url}/jobs/{answer['id']}"))
        if "status" in answer:
            answer = _result(answer)
        return Recommendation.from_dict(answer)

    def _ask(self, request: urllib.request.Request) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise _failure(error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ServiceError(
                f"cannot reach {self.url}: {reason}; `ellect serve` starts the service"
            ) from error


def _result(job: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a job that has ended."""
    found = job.get("result")
    if isinstance(found, dict):
        return found
    raise _told(job, f"job {job['id']} is {job['status']}")


def _failure(error: urllib.error.HTTPError) -> EllectError:
    """Return the exception for an answer with an error status."""
    try:
        answer = json.load(error)
    except ValueError:
        answer = None
    return _told(answer, f"the service answered with status {error.code}")


def _told(answer: Any, otherwise: str) -> EllectError:
    """Return the exception for the error in an answer; `otherwise` is its text if it has none."""
    try:
        told = answer["error"]
        kind, message = str(told["kind"]), str(told["message"])
    except (KeyError, TypeError):
        kind, message = "unknown", otherwise
    known = _KINDS.get(kind)
    return ServiceError(message, kind) if known is None else known(message)


def _body(A: MatrixLike, shape: tuple[int, int] | None) -> tuple[bytes, str | None]:
    """Return the bytes of a matrix as an archive of SciPy, and its precision."""
    if A is None:
        return b"", None
    if isinstance(A, (str, os.PathLike)):
        try:
            with open(A, "rb") as file:
                return file.read(), None
        except OSError as error:
            raise InputError(f"cannot read {os.fspath(A)}: {error.strerror}") from error
    csr = parts(A, shape)
    data = values_of(csr.data, None)
    if min(csr.shape) < 0:
        raise KindError(f"shape is {csr.shape}; both numbers must be 0 or more")
    archive = io.BytesIO()
    np.savez(
        archive,
        format=np.array(b"csr"),
        shape=np.array(csr.shape),
        data=data,
        indices=np.asarray(on_host(csr.indices)),
        indptr=np.asarray(on_host(csr.indptr)),
    )
    return archive.getvalue(), "f32" if data.dtype == np.float32 else "f64"

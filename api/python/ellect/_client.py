"""A client of the HTTP service that ``ellect serve`` starts."""

from __future__ import annotations

import http.client
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
    "encoding": InputError,
    "input": InputError,
    "limit": InputError,
    "refused": RefusedError,
}


class Client:
    """Asks a service for recommendations, and for what it knows of formats, devices and matrices.

    Parameters
    ----------
    url : str
        Address of the service, ``http://localhost:7272`` for instance.
    timeout_s : float
        Time limit of a request in seconds, and of a measurement.
    token : str, optional
        Token that the operator of the service has given; measuring needs one with the role write.

    Examples
    --------
    >>> import ellect
    >>> client = ellect.Client("http://localhost:7272")
    >>> client.recommend(generate="elasticity:60000", device="h200")  # doctest: +SKIP
    Recommendation(choice='hll:hack=32,sort=none,tpr=1,col=16', ...)
    """

    def __init__(self, url: str, *, timeout_s: float = 600.0, token: str | None = None) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ArgumentError(f"url is {url!r}; it must start with http:// or https://")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._token = token

    def __repr__(self) -> str:
        return f"ellect.Client({self.url!r})"

    def health(self) -> dict[str, Any]:
        """Return status, version and devices of the service."""
        return dict(self._get("/healthz"))

    def ready(self) -> dict[str, Any]:
        """Return the state of a service that can answer; otherwise raise `ServiceError`."""
        return dict(self._get("/readyz"))

    def formats(self) -> list[dict[str, Any]]:
        """Return the storage formats with their parameters."""
        return list(self._get("/formats"))

    def devices(self) -> list[dict[str, Any]]:
        """Return the profiles of the devices that the service knows."""
        return list(self._get("/devices"))

    def models(self) -> list[dict[str, Any]]:
        """Return the trained models by device and precision."""
        return list(self._get("/models"))

    def structure(self, fingerprint: str) -> dict[str, Any]:
        """Return features and measurements of a matrix that was measured.

        Parameters
        ----------
        fingerprint : str
            Hash of the pattern: `Recommendation.fingerprint`.

        Raises
        ------
        ServiceError
            If the service has no measurements of this matrix; `kind` is then ``matrix``.
        """
        return dict(self._get(f"/structures/{urllib.parse.quote(fingerprint, safe='')}"))

    def metrics(self) -> str:
        """Return the figures of the service as text for Prometheus."""
        return self._read(urllib.request.Request(f"{self.url}/metrics")).decode()

    def recommend(
        self,
        A: MatrixLike = None,
        *,
        shape: tuple[int, int] | None = None,
        precision: str | None = None,
        fingerprint: str | None = None,
        **options: object,
    ) -> Recommendation:
        """Ask for the ranking of all storage formats for a matrix.

        Parameters
        ----------
        A : matrix, optional
            As for `ellect.recommend`; a file is sent as it is. A dictionary holds the features of a
            matrix by name, as `ellect.features` returns them. None with ``generate=`` or
            `fingerprint`.
        shape : tuple of int, optional
            Numbers of rows and columns, for arrays.
        precision : {'f32', 'f64'}, optional
            Precision of the products; by default that of the values.
        fingerprint : str, optional
            `Recommendation.fingerprint` of an earlier answer, instead of the matrix; the service
            ranks again with other options.
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
            If the service cannot be reached, is busy or fails, wants another token, or does not
            know the fingerprint; `kind` tells which.
        InputError, ArgumentError
            If the service refuses the matrix or an option.
        """
        check_precision(precision)
        if fingerprint is not None and A is not None:
            raise ArgumentError("both a matrix and a fingerprint are given; give one of them")
        body, own = _body(A, shape)
        query = {"precision": precision or own, **options}
        pairs = {name: str(value) for name, value in query.items() if value is not None}
        path = "/recommend"
        if fingerprint is not None:
            path += f"/{urllib.parse.quote(fingerprint, safe='')}"
        address = f"{self.url}{path}?{urllib.parse.urlencode(pairs)}"
        method = "POST" if fingerprint is None else "GET"
        data = body if fingerprint is None else None
        request = urllib.request.Request(address, data=data, method=method)
        kind = "application/json" if isinstance(A, dict) else "application/octet-stream"
        request.add_header("Content-Type", kind)
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
            answer = self._get(f"/jobs/{answer['id']}")
        if "status" in answer:
            answer = _result(answer)
        return Recommendation.from_dict(answer)

    def _get(self, path: str) -> Any:
        return self._ask(urllib.request.Request(f"{self.url}{path}"))

    def _ask(self, request: urllib.request.Request) -> Any:
        text = self._read(request)
        try:
            return json.loads(text)
        except ValueError as error:
            raise ServiceError(
                f"the answer of {request.full_url} is not JSON: {error}; is it a service of ellect?",
                "unknown",
            ) from error

    def _read(self, request: urllib.request.Request) -> bytes:
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise _failure(error) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
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
    except (OSError, ValueError, http.client.HTTPException):
        answer = None
    failure = _told(answer, f"the service answered with status {error.code}")
    wait_s = error.headers.get("Retry-After", "")
    if isinstance(failure, ServiceError) and wait_s.isdecimal():
        failure.retry_after_s = int(wait_s)
    return failure


def _told(answer: Any, otherwise: str) -> EllectError:
    """Return the exception for the error in an answer; `otherwise` is its text if it has none."""
    try:
        told = answer["error"]
        kind, message = str(told.get("code") or told["kind"]), str(told["message"])
    except (AttributeError, KeyError, TypeError):
        kind, message = "unknown", otherwise
    known = _KINDS.get(kind)
    return ServiceError(message, kind) if known is None else known(message)


def _body(A: MatrixLike, shape: tuple[int, int] | None) -> tuple[bytes, str | None]:
    """Return the bytes of a matrix as an archive of SciPy, and its precision."""
    if A is None:
        return b"", None
    if isinstance(A, dict):
        return json.dumps({"features": A}).encode(), None
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

"""A client of the HTTP service that ``ellect serve`` starts."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
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

    def version(self) -> dict[str, Any]:
        """Return name and version of the service."""
        return dict(self._get("/version"))

    def classes(self) -> list[dict[str, Any]]:
        """Return the classes of matrices that ``generate=`` names."""
        return list(self._get("/classes"))

    def samples(self) -> list[dict[str, Any]]:
        """Return the matrices that ship as samples, by name."""
        return list(self._get("/samples"))

    def sample(self, name: str) -> bytes:
        """Return a sample in Matrix Market form."""
        return self._read(self._request("GET", f"/samples/{urllib.parse.quote(name, safe='')}"))

    def formats(self) -> list[dict[str, Any]]:
        """Return the storage formats with their parameters."""
        return list(self._get("/formats"))

    def devices(self) -> list[dict[str, Any]]:
        """Return the profiles of the devices that the service knows."""
        return list(self._get("/devices"))

    def models(self) -> list[dict[str, Any]]:
        """Return the trained models by device and precision, with their scores."""
        return list(self._get("/models"))

    def model_card(self, device: str, precision: str = "f64") -> str:
        """Return the card of the model in use for a device, in Markdown."""
        names = (urllib.parse.quote(name, safe="") for name in (device, precision))
        return self._read(self._request("GET", f"/models/{'/'.join(names)}/card")).decode()

    def reload_models(self) -> list[dict[str, Any]]:
        """Make the service read its models again; return them as `models` does."""
        return list(self._ask(self._request("POST", "/models/reload", body=b"")))

    def structures(self, **options: object) -> dict[str, Any]:
        """Return the measured matrices, and on how many each format was fastest.

        Parameters
        ----------
        **options
            Parameters of ``GET /structures``: origin, text, limit and from.
        """
        return dict(self._ask(self._request("GET", "/structures", _pairs(options))))

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
        return self._read(self._request("GET", "/metrics")).decode()

    def measurements(self, device: str | None = None) -> list[dict[str, Any]]:
        """Return the stored records, all or those of a device, as ``ellect wisdom export`` does."""
        query = {} if device is None else {"device": device}
        lines = self._read(self._request("GET", "/measurements", query)).splitlines()
        return [json.loads(line) for line in lines]

    def add_measurements(
        self, records: Iterable[dict[str, Any]], *, join: bool = False
    ) -> dict[str, Any]:
        """Store records that `measurements` returned, and return how many were taken.

        Parameters
        ----------
        records : iterable of dict
            The records.
        join : bool
            Add timings of a candidate to the stored ones, instead of replacing older ones.
        """
        body = "".join(json.dumps(record) + "\n" for record in records).encode()
        query = {"join": str(join).lower()}
        return dict(self._ask(self._request("POST", "/measurements", query, body)))

    def tune(self, **options: object) -> dict[str, Any]:
        """Train models from the stored measurements, and return the job once it has ended.

        Parameters
        ----------
        **options
            Parameters of ``POST /tune``: device, precision, generate, matrix, budget, plan and
            quick.

        Raises
        ------
        ServiceError
            If the training failed, or takes longer than `timeout_s`; the job then goes on.
        """
        job = self._ended(self._ask(self._request("POST", "/tune", _pairs(options), b"")))
        if job["status"] != "succeeded":
            raise _told(job, f"job {job['id']} is {job['status']}")
        return job

    def jobs(self, **options: object) -> list[dict[str, Any]]:
        """Return the latest jobs, the last one first; `options` are status, kind, limit and from."""
        return list(self._ask(self._request("GET", "/jobs", _pairs(options)))["jobs"])

    def job(self, number: int) -> dict[str, Any]:
        """Return a job, with its result if it has one."""
        return dict(self._get(f"/jobs/{number}"))

    def events(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield a job now and each time it changes, until it has ended or the service stops.

        A service that stops goes on with its jobs at its next start.
        """
        request = self._request("GET", f"/jobs/{number}/events")
        with self._open(request) as answer:
            for line in self._lines(answer):
                if line.startswith(b"data:"):
                    yield json.loads(line.removeprefix(b"data:"))

    def cancel(self, number: int) -> dict[str, Any]:
        """Cancel a job and return it; its end may take some seconds."""
        return dict(self._ask(self._request("DELETE", f"/jobs/{number}")))

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
            Options of the service: device, spmvs, transposed, vectors, updates, effort, basis, values,
            memory_limit, budget, mode, top and generate.

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
        kind = "application/json" if isinstance(A, dict) else "application/octet-stream"
        if fingerprint is None:
            request = self._request("POST", "/recommend", _pairs(query), body, kind)
        else:
            path = f"/recommend/{urllib.parse.quote(fingerprint, safe='')}"
            request = self._request("GET", path, _pairs(query))
        # A measurement that takes long is a job.
        answer = self._ended(self._ask(request))
        return Recommendation.from_dict(_result(answer) if "status" in answer else answer)

    def _ended(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer; one that is a job once the job has ended."""
        start = time.monotonic()
        while answer.get("status") in ("enqueued", "processing"):
            if time.monotonic() - start > self.timeout_s:
                raise ServiceError(
                    f"job {answer['id']} has not ended within {self.timeout_s} s; it goes on, and "
                    f"{self.url}/jobs/{answer['id']} has its result"
                )
            time.sleep(_PAUSE_S)
            answer = self._get(f"/jobs/{answer['id']}")
        return answer

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: bytes | None = None,
        kind: str = "application/octet-stream",
    ) -> urllib.request.Request:
        query_text = f"?{urllib.parse.urlencode(query)}" if query else ""
        request = urllib.request.Request(f"{self.url}{path}{query_text}", body, method=method)
        if body is not None:
            request.add_header("Content-Type", kind)
        return request

    def _get(self, path: str) -> Any:
        return self._ask(self._request("GET", path))

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
        with self._open(request) as answer, self._told_of_faults():
            found: bytes = answer.read()
            return found

    def _lines(self, answer: Any) -> Iterator[bytes]:
        with self._told_of_faults():
            yield from answer

    def _open(self, request: urllib.request.Request) -> Any:
        """Send a request and return its answer, whose body is not read yet."""
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        with self._told_of_faults():
            return urllib.request.urlopen(request, timeout=self.timeout_s)

    @contextlib.contextmanager
    def _told_of_faults(self) -> Iterator[None]:
        """Raise the error of an answer, or of a connection, as one of this package."""
        try:
            yield
        except urllib.error.HTTPError as error:
            with error:
                raise _failure(error) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ServiceError(
                f"cannot reach {self.url}: {reason}; `ellect serve` starts the service"
            ) from error


def _pairs(options: dict[str, Any]) -> dict[str, str]:
    """Return the options that are given, as text."""

    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return {name: text(value) for name, value in options.items() if value is not None}


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

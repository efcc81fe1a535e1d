"""Exceptions of the package. Every message says what is wrong and what to do."""


class EllectError(Exception):
    """Base of all exceptions that this package raises."""


class InputError(EllectError, ValueError):
    """A matrix is not valid, or larger than a limit."""


class ShapeError(EllectError, ValueError):
    """The length of an array does not match the matrix."""


class ArgumentError(EllectError, ValueError):
    """An argument has no legal value, or names a device that does not exist."""


class KindError(EllectError, TypeError):
    """An argument has a type that cannot be used."""


class RefusedError(EllectError, ValueError):
    """The matrix or its new values do not suit the storage format."""


class DeviceError(EllectError, RuntimeError):
    """A device of this machine cannot be used now."""


class ExchangeError(EllectError, RuntimeError):
    """Messages between ranks failed, or another rank did."""


class WisdomError(EllectError, RuntimeError):
    """The database of measurements cannot be used."""


class FileError(EllectError, OSError):
    """A file cannot be read."""


class ServiceError(EllectError, RuntimeError):
    """The service cannot be reached, or failed.

    Attributes
    ----------
    kind : str
        Stable word of the service for the kind of failure, for instance ``busy``; ``unreachable``
        if there is no answer.
    retry_after_s : int or None
        Seconds after which the service asks to try again.
    """

    def __init__(self, message: str, kind: str = "unreachable") -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_s: int | None = None


class InternalError(EllectError, RuntimeError):
    """The library failed; this is a fault of ellect."""


class RepairedWarning(UserWarning):
    """A matrix had unsorted or repeated entries, and a repaired copy is used."""

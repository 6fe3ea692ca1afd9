"""What can go wrong, as exceptions. docs/protocol.md lists the outcomes by name."""
from __future__ import annotations

from . import troupe_pb2 as pb
from .printable import printable

_PREFIX = len("OUTCOME_")


def outcome_name(number: int) -> str:
    """The name of an outcome as in docs/protocol.md ("length"); one that a newer server has added is its number."""
    try:
        return str(pb.Outcome.Name(number))[_PREFIX:].lower()
    except ValueError:
        return str(number)


def pooling_name(number: int) -> str:
    """As outcome_name(), of a pooling ("mean")."""
    try:
        return str(pb.Pooling.Name(number))[len("POOLING_"):].lower()
    except ValueError:
        return str(number)


class TroupeError(Exception):
    """Base of all exceptions of this package. Control characters in a text of the server are escaped."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class ConnectionLost(TroupeError, ConnectionError):
    """There is no server, or the connection to it has ended. What was under way may have been computed."""


class ProtocolError(TroupeError):
    """The server sent what the protocol does not allow. The connection is closed, and all its requests end with this."""


class UntrustedServer(TroupeError, PermissionError):
    """The server may not be the one that is meant: another user's, on a path where others can put a socket."""


class Refused(TroupeError):
    """The server has not taken a request; nothing was computed."""

    def __init__(self, frame: pb.Refused) -> None:
        super().__init__(frame.message)
        self.outcome = outcome_name(frame.code)
        """"queue_full", "invalid_argument", ..."""
        self.field = printable(frame.field)
        """Path of the field that is wrong, or name of the limit that was met."""
        self.limit: int | None = frame.limit if frame.HasField("limit") else None
        """The limit that was met."""
        self.retry_after = _seconds(frame, "retry_after_ms")
        """Seconds after which the same request may be taken; None: sending it again does not help."""
        self.predicted_first = _seconds(frame, "predicted_first_ms")
        """deadline_unmeetable: seconds until the first token would have come."""
        self.predicted_last = _seconds(frame, "predicted_last_ms")
        """The same of the last token."""


class Failed(TroupeError):
    """The server has failed at a request."""

    def __init__(self, frame: pb.Failed) -> None:
        super().__init__(frame.message)
        self.outcome = outcome_name(frame.code)
        """"worker_lost", "model_unloaded", ..."""
        self.choice = frame.choice
        """Which of the answers."""
        self.usage = frame.usage
        self.receipt = frame.receipt
        self.seed = frame.seed


class Cancelled(TroupeError):
    """The server has ended a request that has no answer to cut short, such as embed(): it stops."""


def _seconds(frame: pb.Refused, field: str) -> float | None:
    return getattr(frame, field) / 1000 if frame.HasField(field) else None

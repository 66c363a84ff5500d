"""Every error of ours, named by what the caller can do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class RoquetError(Exception):
    """The root: catch it to catch everything of ours."""


class UsageError(RoquetError):
    """The call or the configuration is wrong; the message says what a right one looks like."""


class NotFound(UsageError):  # noqa: N818
    """The call names something that is not there; the message says what there is."""


class Refused(RoquetError):  # noqa: N818  (it is an answer, not an accident)
    """The peer answered no. `code` is its response code, `remark` its own words."""

    def __init__(self, code: int, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code
        self.remark = remark
        self.fields: dict[str, str] = dict(fields or {})
        """What else the answer says."""
        self.about_account = False
        """Whether the peer refuses the account or its signature, and not the request itself."""


class Unreachable(RoquetError):  # noqa: N818
    """The request never left: trying again, or elsewhere, cannot do it twice."""


class RequestTooLong(Unreachable):
    """The request is longer than any peer takes: sent, it would end the connection of all."""


class OutcomeUnknown(RoquetError):  # noqa: N818
    """The request left and no answer came: it may have been carried out."""


class DecodeFailed(RoquetError):  # noqa: N818
    """A codec cannot read a message's body."""


class BrokenFrame(RoquetError):  # noqa: N818
    """The peer sent bytes that cannot be a frame; the connection has to be closed."""


class Corrupt(RoquetError):  # noqa: N818
    """Stored bytes are not what was written; an operator has to look."""


class DiskFull(RoquetError):  # noqa: N818
    """There is no room to store more; reading goes on."""


def is_of_the_system(error: Exception) -> bool:
    """Return whether the operating system refused: its words say all, a traceback adds nothing."""
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno is not None)


class TableFull(RoquetError):  # noqa: N818
    """A table takes no more entries; those that it has can still be changed."""


class PortTaken(UsageError):  # noqa: N818
    """A port cannot be had; another one can."""

    def __init__(self, text: str, port: str) -> None:
        """Say it of this port."""
        super().__init__(text)
        self.port = port

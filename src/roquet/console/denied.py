"""What the console answers when it says no by itself."""

from __future__ import annotations

from roquet.base.errors import RoquetError


class Denied(RoquetError):  # noqa: N818  (it is an answer, not an accident)
    """The console itself says no. `status` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

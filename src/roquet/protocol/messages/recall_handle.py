"""The handle by which a timer message is recalled (Java: RecallMessageHandle; spec: wire §8.4)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

VERSION = "v1"
LENGTH_MAX = 2048
_TIME = re.compile(r"[0-9]{1,19}", re.ASCII)


class RecallHandle(NamedTuple):
    """What a handle says."""

    topic: str
    broker_name: str
    due_ms: int
    """Unix milliseconds, in the step at which the message is due."""
    unique_key: str

    def encode(self) -> str:
        """Return the text that senders keep."""
        text = f"{VERSION} {self.topic} {self.broker_name} {self.due_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """Read a handle. Raises ValueError with the reason."""
        if not text or len(text) > LENGTH_MAX:
            raise ValueError("recall handle is invalid")
        try:
            raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
            parts = raw.decode().split(" ")
        except (binascii.Error, UnicodeError) as error:
            raise ValueError("recall handle is invalid") from error
        if parts[0] != VERSION:
            raise ValueError("recall handle version is invalid")
        if len(parts) != 5 or not _TIME.fullmatch(parts[3]) or "" in parts:
            raise ValueError("recall handle is invalid")
        return cls(parts[1], parts[2], int(parts[3]), parts[4])

"""One request or response, whole: what a frame holds (Java: RemotingCommand; spec: wire §2-3)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 513
"""The version this side claims: ordinal of V5_5_0 in Java's list (spec: wire §3.2)."""

FLAG_RESPONSE = 1
FLAG_ONE_WAY = 2

LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
"""Language names in the order of their binary codes."""

JSON = 0
BINARY = 1
"""Header encodings: serializeType of the frame."""


@dataclasses.dataclass(slots=True)
class Command:
    """A decoded frame. `ext` is None when the header had no extFields at all."""

    code: int
    ext: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None
    flag: int = 0
    opaque: int = 0
    language: str = "PYTHON"
    version: int = VERSION
    encoding: int = JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flag & FLAG_ONE_WAY)


def bytes_of(command: Command) -> int:
    """Return about how much a command takes that is kept: characters of fields, and its body."""
    fields = sum(len(key) + len(value) for key, value in (command.ext or {}).items())
    return len(command.language) + len(command.remark or "") + fields + len(command.body)


def reply_to(
    request: Command,
    code: int = 0,
    *,
    remark: str | None = None,
    ext: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Command:
    """Make the answer to `request`: same opaque, response flag, our version and language JAVA.

    Clients of other languages are only tested against brokers that say JAVA, so we say it too.
    """
    return Command(
        code=code,
        ext=dict(ext) if ext is not None else None,
        body=body,
        remark=remark,
        flag=FLAG_RESPONSE,
        opaque=request.opaque,
        language="JAVA",
    )

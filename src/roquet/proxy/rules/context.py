"""Who calls, by the metadata of a call (spec: proxy, gRPC request path)."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.broker.api.caller import Caller, Front
from roquet.proxy.rules.codes import Code, Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.acl.needs import Need
    from roquet.acl.rights import RequestGuard

CLIENT_ID = "x-mq-client-id"
LANGUAGE = "x-mq-language"
VERSION = "x-mq-client-version"
DATE_TIME = "x-mq-date-time"
AUTHORIZATION = "authorization"
TIMEOUT = "grpc-timeout"
CLIENT_ID_LENGTH_MAX = 1024
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_UNITS_MS = {"H": 3_600_000.0, "M": 60_000.0, "S": 1000.0, "m": 1.0, "u": 0.001, "n": 0.000001}
_V5 = 513
"""The version that clients of gRPC count as for the broker: that of 5.5.0."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How a call began, as the transport has it."""

    path: str
    remote: str
    """`ip:port` of the client, as `local` is ours."""
    local: str
    authority: str
    """Host and port that the client believes to speak to."""
    metadata: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A call whose credentials are checked."""

    client_id: str
    language: str
    version: str
    remote: str
    authority: str
    access_key: str
    secret: bytes | None = dataclasses.field(repr=False)
    """What the account signed the call with; None where nobody has to sign."""
    received_ms: int
    deadline_ms: int | None
    """Unix milliseconds; None: the client has not said."""

    @property
    def caller(self) -> Caller:
        """The caller as the broker's API has it."""
        return Caller(
            address=self.remote,
            access_key=self.access_key,
            client_id=self.client_id,
            language=self.language,
            version=_V5,
            front=Front.GRPC,
            received_ms=self.received_ms,
            deadline_ms=self.deadline_ms,
        )


def context_of(head: Head, access_key: str, secret: bytes | None, now_ms: int) -> Context:
    """Return who calls. Raises Rejected without a client id."""
    found = dict(head.metadata)
    client_id = found.get(CLIENT_ID, "")
    if not client_id.strip():
        raise Rejected(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > CLIENT_ID_LENGTH_MAX:
        text = f"client id is longer than {CLIENT_ID_LENGTH_MAX} characters"
        raise Rejected(Code.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    timeout_ms = timeout_of(found.get(TIMEOUT))
    return Context(
        client_id=client_id,
        language=found.get(LANGUAGE, "")[:32],
        version=found.get(VERSION, "")[:64],
        remote=head.remote,
        authority=head.authority,
        access_key=access_key,
        secret=secret,
        received_ms=now_ms,
        deadline_ms=None if timeout_ms is None else now_ms + timeout_ms,
    )


def is_current(context: Context, guard: RequestGuard | None) -> bool:
    """Tell whether an account signs as it did when the call came.

    While nobody is known (before a cluster whose brokers are away) nothing speaks against it.
    """
    secrets = None if guard is None else guard.secrets
    return not secrets or secrets.get(context.access_key) == context.secret


def check_current(context: Context, guard: RequestGuard | None, needs: Sequence[Need] = ()) -> None:
    """Raise Rejected where a call that lasts, and has these needs, could not be begun any more."""
    if guard is None:
        return
    try:
        guard.check_waiting(0, context.caller, context.secret, needs)
    except Refused as refused:
        raise Rejected(Code.UNAUTHORIZED, refused.remark) from refused


def timeout_of(text: str | None) -> int | None:
    """Return how long the client waits, in milliseconds; None when it has not said."""
    match = _TIMEOUT.fullmatch(text or "")
    return None if match is None else int(int(match[1]) * _UNITS_MS[match[2]])

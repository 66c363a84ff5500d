"""What a peer's refusal means: in plain words, with what to do, and whether waiting helps. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, RoquetError, UsageError
from roquet.protocol.codes import ResponseCode
from roquet.remoting.other_servers import WrongServer
from roquet.remoting.tls import TlsMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

_READ_MAX = 2_048
"""Characters of a remark in which these words are looked for: a peer may repeat in it whatever
it was sent, a megabyte of it."""
# Each begins where a word or a run of spaces begins, and is tried there once.
_CLASS_NAME = re.compile(r"(?<![\w.])(?:[a-z_]\w*+\.){2,}+[A-Z]\w*(?:Exception|Error)\b:?\s*")
_PAGE = re.compile(r"(?<!\s)\s*+See https?://\S+ for further details\.?")
_ACCOUNT = re.compile(
    r"No accessKey|accessKey is missing|[Cc]heck signature failed|No acl config for|"
    r"No default permission|Need admin permission|AclException|AuthenticationException|"
    r"AuthorizationException|username cannot be null|User:.* is (?:not found|disabled)"
)
_NO_ACCOUNT = (
    "the cluster asks for an account: set ROQUET_ACCESS_KEY and ROQUET_SECRET_KEY; in Python"
    " connect(..., credentials=...); for commands also roquet context add NAME HOST:PORT"
    " --access-key KEY --secret-file FILE"
)
_HINTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"No accessKey is configured|accessKey is missing|username cannot be null"),
        _NO_ACCOUNT,
    ),
    (
        re.compile(r"[Cc]heck signature failed|No acl config for|User:.* is not found"),
        "the access key or its secret is wrong: check ROQUET_ACCESS_KEY and ROQUET_SECRET_KEY",
    ),
    (
        re.compile(r"User:.* is disabled"),
        "an administrator has to enable it (roquet user alter USER --status enable)",
    ),
    (
        re.compile(r"No default permission|Need admin permission|User:.* has no permission"),
        "an administrator has to grant it to this access key",
    ),
    (
        re.compile(r"does not support consumer to filter message by SQL92"),
        "set enablePropertyFilter=true on the broker (roquet broker -s enablePropertyFilter=true)",
    ),
    (
        re.compile(r"topic\[.*\] not exist, apply first"),
        "create it first: roquet topic create TOPIC",
    ),
    (
        re.compile(r"subscription group \[.*\] does not exist|subscription group not exist"),
        "create the group first, or set autoCreateSubscriptionGroup=true on the broker",
    ),
)
_NEVER_HEAL = frozenset(
    {
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.VERSION_NOT_SUPPORTED,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
    }
)
_BROKER_IS_CLOSED = re.compile(r"the broker\b")
"""How refusals begin that hold for a whole broker: an operator drains it and opens it again."""


def refused(code: int, remark: str | None, fields: Mapping[str, str] | None = None) -> Refused:
    """Make the error for an answer: no names of classes, no foreign pages, a hint where known."""
    given, rest = (remark or "")[:_READ_MAX], (remark or "")[_READ_MAX:]
    text = f"{_PAGE.sub('', _CLASS_NAME.sub('', given))}{rest}".strip()
    hint = next((hint for pattern, hint in _HINTS if pattern.search(given)), None)
    found = Refused(code, text if hint is None else f"{text.rstrip('.')}; {hint}", fields)
    found.about_account = _ACCOUNT.search(given) is not None
    return found


def cannot_heal(error: RoquetError) -> bool:
    """Tell whether waiting is in vain: somebody has to change the call, an account or a setting."""
    if isinstance(error, (UsageError, TlsMismatch, WrongServer)):
        return True
    if not isinstance(error, Refused):
        return False
    if error.about_account or error.code in _NEVER_HEAL:
        return True
    if error.code == ResponseCode.NO_PERMISSION:
        return _BROKER_IS_CLOSED.match(error.remark) is None
    return "enablePropertyFilter" in error.remark

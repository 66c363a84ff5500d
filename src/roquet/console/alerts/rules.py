"""When an alert is raised and when it is over. Pure: what is seen and the time are given.

An alert is raised when its condition has held for `hold` seconds, and is over when the condition
has not held, with some distance to its limit, for once: a value that swings around its limit raises
one alert and not many. Of what is not seen any more, a deleted group say, the alert is over.
"""

from __future__ import annotations

import collections
import dataclasses
import tomllib
import urllib.parse
from typing import TYPE_CHECKING, Any, cast

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NAME_SERVERS = "name servers"
"""All of them together, as a node."""
_SIZE_MAX = 1 << 20
_GROUPS_MAX = 10_000
_PAST_MAX = 200
_OPEN_MAX = 10_000
_LAG_BACK = 0.8
"""A lag is over below this share of its limit."""
_DISK_BACK = 0.02
_KEYS = {"lag", "disk", "gone", "hold", "lag_of", "webhook"}
_WEBHOOK_KEYS = {"url", "secret"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """Limits. `repr` shows no secret."""

    lag: int = 10_000
    """Messages that a group may be behind; 0: any number."""
    lag_of: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    """The same for groups by name."""
    disk: int = 85
    """Per cent of a broker's disk that may be used; 0: any."""
    gone: int = 30
    """Seconds for which a broker or the name servers may be away."""
    hold: int = 60
    """Seconds for which a lag or a disk must be above its limit."""
    url: str = ""
    """Where alerts are posted; empty: nowhere."""
    secret: str = dataclasses.field(default="", repr=False)
    """Key of the signature of what is posted."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Alert:
    """One that was raised. Times are Unix milliseconds."""

    kind: str
    """`lag`, `disk` or `gone`."""
    subject: str
    value: float
    limit: float
    text: str
    since_ms: int
    over_ms: int | None = None

    @property
    def id(self) -> str:
        """The same for an alert's beginning and end, and for each time that it is posted."""
        return f"{self.kind}:{self.subject}:{self.since_ms}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of a cluster in one look."""

    lags: Mapping[str, int]
    disks: Mapping[str, float]
    """Share of the disk that is used, by broker."""
    nodes: Mapping[str, bool]
    """Whether a node that should be there answers."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    value: float
    limit: float
    text: str
    is_bad: bool
    """Beyond the limit."""
    is_fine: bool
    """So far on the right side of it that an alert is over."""
    hold_s: int


class Alerts:
    """The alerts of one cluster."""

    def __init__(self, rules: AlertRules) -> None:
        """Have none."""
        self.rules = rules
        self.open: dict[tuple[str, str], Alert] = {}
        self.past: collections.deque[Alert] = collections.deque(maxlen=_PAST_MAX)
        """Those that are over, the newest last."""
        self.since: dict[tuple[str, str], int] = {}
        """Since when, Unix milliseconds, what is not an alert yet is beyond its limit."""

    def recall(
        self, opened: Iterable[Alert], past: Iterable[Alert], since: Mapping[tuple[str, str], int]
    ) -> None:
        """Go on with what was known before a restart."""
        self.open = {(it.kind, it.subject): it for it in opened}
        self.past.extend(past)
        self.since = dict(since)

    def judge(self, now_ms: int, seen: Seen) -> list[tuple[str, Alert]]:
        """Return what changes: `raised` or `over`, and the alert."""
        cases = self._cases(seen)
        for key in [it for it in self.since if it not in cases]:
            del self.since[key]
        left = [it for it in self.open if it not in cases]
        changes = [("over", self._end(it, now_ms, "it is not there any more")) for it in left]
        for key, case in cases.items():
            found = self.open.get(key)
            if found is not None:
                if case.is_fine:
                    changes.append(("over", self._end(key, now_ms, case.text)))
                else:
                    found.value, found.text = case.value, case.text
            elif not case.is_bad:
                self.since.pop(key, None)
            elif len(self.open) < _OPEN_MAX and self._has_held(key, case, now_ms):
                kind, subject = key
                raised = self.open[key] = Alert(
                    kind=kind,
                    subject=subject,
                    value=case.value,
                    limit=case.limit,
                    text=case.text,
                    since_ms=self.since.pop(key),
                )
                changes.append(("raised", raised))
        return changes

    def _has_held(self, key: tuple[str, str], case: _Case, now_ms: int) -> bool:
        since_ms = self.since.setdefault(key, now_ms)
        return now_ms - since_ms >= case.hold_s * 1000

    def _end(self, key: tuple[str, str], now_ms: int, text: str) -> Alert:
        found = self.open.pop(key)
        found.over_ms, found.text = now_ms, text
        self.past.append(found)
        return found

    def _cases(self, seen: Seen) -> dict[tuple[str, str], _Case]:
        rules = self.rules
        cases: dict[tuple[str, str], _Case] = {}
        for group, lag in seen.lags.items():
            limit = rules.lag_of.get(group, rules.lag)
            if limit:
                text = f"{group} is behind by {lag} messages, {limit} are allowed"
                fine = lag <= limit * _LAG_BACK
                cases["lag", group] = _Case(lag, limit, text, lag > limit, fine, rules.hold)
        for broker, share in seen.disks.items():
            if rules.disk:
                limit_share = rules.disk / 100
                text = f"the disk of {broker} is full to {share:.0%}, {rules.disk} % are allowed"
                fine = share <= limit_share - _DISK_BACK
                bad = share > limit_share
                cases["disk", broker] = _Case(share, limit_share, text, bad, fine, rules.hold)
        for node, is_there in seen.nodes.items():
            text = _said_of(node, is_there=is_there)
            case = _Case(float(is_there), 1, text, not is_there, is_there, rules.gone)
            cases["gone", node] = case
        return cases


def _said_of(node: str, *, is_there: bool) -> str:
    if node == NAME_SERVERS:
        return "name servers answer" if is_there else "name servers do not answer"
    return f"{node} answers" if is_there else f"{node} does not answer or has left"


def load(file: Path) -> AlertRules:
    """Read the rules of a TOML file. Raises UsageError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_SIZE_MAX + 1)
    except OSError as error:
        raise UsageError(f"--alerts {file}: {error.strerror}") from error
    if len(data) > _SIZE_MAX:
        raise UsageError(f"--alerts {file} has more than {_SIZE_MAX} bytes")
    try:
        source = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--alerts {file}: {error}") from error
    rules = _rules(file, source)
    # The address alone lets others post where chats make an address the secret.
    if rules.url and file.stat().st_mode & 0o077:
        raise UsageError(f"--alerts {file} may be read by others: chmod 600 {file}")
    return rules


def _rules(file: Path, source: Mapping[str, Any]) -> AlertRules:
    where = f"--alerts {file}"
    webhook = _table(where, source, "webhook")
    lag_of = _table(where, source, "lag_of")
    unknown = [*(set(source) - _KEYS), *(set(webhook) - _WEBHOOK_KEYS)]
    if unknown:
        raise UsageError(f"{where}: {str(unknown[0])[:64]!r} is no key: {', '.join(sorted(_KEYS))}")
    if len(lag_of) > _GROUPS_MAX:
        raise UsageError(f"{where}: lag_of has more than {_GROUPS_MAX} groups")
    url, secret = webhook.get("url", ""), webhook.get("secret", "")
    if not isinstance(url, str) or not isinstance(secret, str):
        raise UsageError(f"{where}: url and secret of the webhook are texts")
    if webhook:
        split(url)
    numbers = {
        "lag": _number(where, source, "lag", AlertRules().lag, 2**62),
        "disk": _number(where, source, "disk", AlertRules().disk, 100),
        "gone": _number(where, source, "gone", AlertRules().gone, 86_400),
        "hold": _number(where, source, "hold", AlertRules().hold, 86_400),
    }
    limits = {name: _number(f"{where}: lag_of", lag_of, name, 0, 2**62) for name in lag_of}
    return AlertRules(**numbers, lag_of=limits, url=url, secret=secret)


def split(url: str) -> urllib.parse.SplitResult:
    """Return the parts of a webhook's address. Raises UsageError."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, good = urllib.parse.urlsplit(""), False
    if not good or not url.isascii() or not url.isprintable() or " " in url or parts.username:
        raise UsageError("the webhook's url should look like https://host/path")
    return parts


def _table(where: str, source: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = source.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{where}: {name} should be a table: [{name}]")
    return cast("dict[str, Any]", found)


def _number(where: str, source: Mapping[str, Any], name: str, default: int, high: int) -> int:
    found = source.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= high:
        raise UsageError(f"{where}: {name[:64]} should be a whole number of 0 to {high}")
    return found

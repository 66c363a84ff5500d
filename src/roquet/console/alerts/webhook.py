"""Posts alerts to an address, each until it was taken or was tried often enough.

A receiver may get one twice, when its answer was lost: `id` and `event` tell those apart. The order
is kept: while one is tried again, those behind it wait.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import hmac
import http.client
import json
import logging
from typing import TYPE_CHECKING, Any

from roquet.base.errors import Unreachable
from roquet.console.alerts.rules import split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.base.clock import Clock
    from roquet.console.alerts.rules import Alert, AlertRules

log = logging.getLogger(__name__)

EVERY_S = 1.0
TIMEOUT_S = 10.0
_WAITING_MAX = 200
_TRIES_MAX = 10
_PAUSE_MAX_S = 60.0
_ANSWER_MAX = 64 * 1024
SIGNATURE = "X-Roquet-Signature"


class Webhook:
    """What waits to be posted. `tick` is the action of a timer."""

    def __init__(self, rules: AlertRules, clock: Clock) -> None:
        """Have nothing to post."""
        self._rules = rules
        self._clock = clock
        self._waiting: collections.deque[dict[str, Any]] = collections.deque()
        self._tries = 0
        self._next_s = 0.0
        self.posted = 0
        self.lost = 0
        """Alerts that the receiver never took."""
        self.wrong = ""
        """Why the last try failed; empty when it did not."""

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def left(self) -> list[dict[str, Any]]:
        """Return what waits, to be recalled after a restart."""
        return [dict(it) for it in self._waiting]

    def recall(self, waiting: Iterable[dict[str, Any]]) -> None:
        """Post what waited before a restart; drop it where nobody is told any more."""
        if self._rules.url:
            self._waiting.extend(list(waiting)[:_WAITING_MAX])

    def put(self, event: str, alert: Alert, cluster: str) -> None:
        """Post this later. The oldest gives way where too many wait."""
        if not self._rules.url:
            return
        if len(self._waiting) >= _WAITING_MAX:
            self._waiting.popleft()
            self._tries = 0
            self._give_up("too many wait")
        self._waiting.append(
            {
                "id": alert.id,
                "event": event,
                "cluster": cluster,
                "kind": alert.kind,
                "subject": alert.subject,
                "text": f"{event}: {alert.text}",
                "value": alert.value,
                "limit": alert.limit,
                "since_ms": alert.since_ms,
                "over_ms": alert.over_ms,
            }
        )

    async def tick(self) -> None:
        """Post what waits, until one is not taken."""
        while self._waiting and self._clock.steady_ms() / 1000 >= self._next_s:
            first = self._waiting[0]
            try:
                await asyncio.to_thread(post, self._rules, first)
            except Unreachable as error:
                self._failed(first, str(error))
                return
            self.wrong, self._tries = "", 0
            self.posted += 1
            if self._waiting and self._waiting[0] is first:
                self._waiting.popleft()

    def _failed(self, first: Mapping[str, Any], why: str) -> None:
        self.wrong = why
        self._tries += 1
        pause_s = min(_PAUSE_MAX_S, 2.0 ** (self._tries - 1))
        self._next_s = self._clock.steady_ms() / 1000 + pause_s
        if self._tries >= _TRIES_MAX and self._waiting and self._waiting[0] is first:
            self._waiting.popleft()
            self._tries = 0
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        self.lost += 1
        log.error("an alert was not posted: %s", why)


def post(rules: AlertRules, about: Mapping[str, Any]) -> None:
    """Post one object. Raises Unreachable unless the receiver answers with a status of 200 to 299.

    Redirects are not followed: the secret of the signature is for this address alone.
    """
    parts = split(rules.url)
    body = json.dumps(about).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "roquet-console"}
    if rules.secret:
        digest = hmac.new(rules.secret.encode(), body, hashlib.sha256).hexdigest()
        headers[SIGNATURE] = f"sha256={digest}"
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read(_ANSWER_MAX)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(str(error) or type(error).__name__) from error
    if not 200 <= answer.status < 300:
        raise Unreachable(f"the webhook answered with status {answer.status}")

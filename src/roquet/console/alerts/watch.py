"""Looks at a cluster for its alerts, also while nobody has a page open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import RoquetError
from roquet.console.alerts.rules import NAME_SERVERS, Alert, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.admin import Admin
    from roquet.base.clock import Clock
    from roquet.console.alerts.rules import Alerts
    from roquet.console.alerts.webhook import Webhook
    from roquet.console.sampler import Sampler

EVERY_S = 5.0
_NODES_MAX = 1000


class Watch:
    """Judges and tells. `tick` is the action of a timer.

    With a webhook it looks all the time, without one only while somebody has a page open.
    """

    def __init__(
        self,
        admin: Callable[[], Admin],
        clock: Clock,
        *,
        alerts: Alerts,
        webhook: Webhook,
        sampler: Sampler,
        cluster: str,
    ) -> None:
        """Look at nothing yet."""
        self._admin = admin
        self._clock = clock
        self.alerts = alerts
        self.webhook = webhook
        self._sampler = sampler
        self._cluster = cluster
        self._nodes: dict[str, bool] = {}
        self._disks: dict[str, float] = {}
        """As they were when their broker answered last."""
        self._lags: dict[str, int] = {}
        """Of groups that were not looked at since a restart."""

    async def tick(self) -> None:
        """Look once, and post what has changed."""
        if self.alerts.rules.url:
            self._sampler.watched()
        if not self._sampler.is_watched:
            return
        seen = await self._look()
        for event, alert in self.alerts.judge(self._clock.now_ms(), seen):
            self.webhook.put(event, alert, self._cluster)

    def recall(self, nodes: Mapping[str, bool]) -> None:
        """Miss nodes that were there before a restart, and end no alert before a new look.

        Groups are looked at in turn: until each had its turn, one is as far behind as its alert
        says.
        """
        self._nodes = dict(nodes)
        opened = self.alerts.open.values()
        self._lags = {it.subject: int(it.value) for it in opened if it.kind == "lag"}
        self._disks = {it.subject: it.value for it in opened if it.kind == "disk"}

    def nodes(self) -> dict[str, bool]:
        """Return the nodes that were ever seen, and whether they were there in the last look."""
        return dict(self._nodes)

    def forget(self, node: str) -> bool:
        """Miss a node no more that was taken away for good; tell whether it was missed."""
        return self._nodes.get(node) is False and self._nodes.pop(node, None) is not None

    def test(self) -> None:
        """Post an alert about nothing."""
        now_ms = self._clock.now_ms()
        text = "a test: somebody pressed the button of the console"
        about = Alert(kind="test", subject="console", value=0, limit=0, text=text, since_ms=now_ms)
        self.webhook.put("raised", about, self._cluster)

    async def _look(self) -> Seen:
        admin = self._admin()
        there: set[str] = set()
        departed: tuple[str, ...] = ()
        try:
            known = (await admin.brokers.cluster()).brokers
            departed = await admin.brokers.departed()
        except RoquetError:
            # Who is there is not known: only the name servers are missed.
            self._nodes[NAME_SERVERS] = False
            return self._seen()
        there.add(NAME_SERVERS)
        missing = set[str]()
        for name, data in known.items():
            for number, address in data.addresses.items():
                place = f"broker {name}:{number}"
                try:
                    found = await admin.brokers.runtime(address)
                except RoquetError:
                    missing.add(place)
                    continue
                there.add(place)
                share = _share(found.get("commitLogDiskRatio", ""))
                if share is not None:
                    self._disks[place] = share
        missing |= {f"broker {name}:0" for name in departed if name not in known}
        self._nodes = {name: name in there for name in self._nodes}
        for name in sorted(there | missing)[:_NODES_MAX]:
            self._nodes[name] = name in there
        return self._seen()

    def _seen(self) -> Seen:
        if self._sampler.rounds:
            self._lags = {}
        lags = {**self._lags, **{name: it.lag for name, it in self._sampler.groups.items()}}
        disks = {name: share for name, share in self._disks.items() if name in self._nodes}
        self._disks = disks
        return Seen(lags=lags, disks=disks, nodes=dict(self._nodes))


def _share(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

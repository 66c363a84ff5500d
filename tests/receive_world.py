"""The checks of reads over real tables, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from roquet.broker.api.receive import ReceiveForbidden, ReceiveRequest
from roquet.broker.api.refusal import Refusal
from roquet.broker.clients.expressions import Expressions
from roquet.broker.pull_rules import PullConfig
from roquet.broker.services.receive_checks import Admitted, ReceiveChecks
from roquet.broker.state import BrokerState
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.protocol.tags import subscribe
from roquet.store.tables.files import JsonFile
from roquet.store.tables.filters import FilterTable
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path


class Members:
    """What heartbeats have said."""

    def __init__(self) -> None:
        self.group: Any = SimpleNamespace(is_broadcasting=False)
        self.subscriptions: dict[str, SubscriptionData] = {}

    def consumer(self, group: str) -> Any:
        return self.group if group == "readers" else None

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        assert group == "readers"
        return self.subscriptions.get(topic)


class World:
    """The checks over real tables; `readers` have members that subscribe to `orders`."""

    def __init__(self, folder: Path, rules: PullConfig | None = None) -> None:
        clock = FakeClock()
        self.topics = TopicTable(
            JsonFile(folder / "topics.json"), TopicTableConfig(cluster="c", broker_name="b"), clock
        )
        for name in ("orders", "%RETRY%readers"):
            self.topics.put(TopicConfig(name=name, read_queues=2, write_queues=4))
        self.groups = GroupTable(JsonFile(folder / "groups.json"), GroupTableConfig(), clock)
        self.group()
        self.filters = FilterTable(JsonFile(folder / "filters.json"), clock)
        self.members = Members()
        self.subscribe("orders", "a || b")
        self.state = BrokerState()
        self.expressions = Expressions()
        self.checks = ReceiveChecks(
            self.topics,
            self.groups,
            self.filters,
            self.members,
            state=self.state,
            rules=rules or PullConfig(),
            expressions=self.expressions,
        )

    def group(self, **changes: Any) -> None:
        self.groups.put(SubscriptionGroupConfig(name="readers", **changes))

    def subscribe(self, topic: str, text: str, kind: str = "TAG", version: int = 5) -> None:
        """Have the members subscribe."""
        self.members.subscriptions[topic] = subscribe(
            topic, text, version=version, expression_type=kind
        )

    def keep_filter(self, text: str, version: int, topic: str = "orders") -> None:
        """Have a filter in the table, as heartbeats bring it."""
        found = SubscriptionData(
            topic=topic, expression=text, expression_type="SQL92", version=version
        )
        self.filters.follow("readers", {topic: found})

    def admit(self, **changes: Any) -> Admitted:
        given = {"group": "readers", "topic": "orders", "queue_id": 0, "offset": 3}
        return self.checks.admit(ReceiveRequest(messages_max=32, **{**given, **changes}))

    def refusal(self, **changes: Any) -> tuple[Any, str]:
        """Return who forbids, or else the reason, and the text."""
        with pytest.raises(Refusal) as caught:
            self.admit(**changes)
        error = caught.value
        by = error.by if isinstance(error, ReceiveForbidden) else error.reason
        return by, error.text

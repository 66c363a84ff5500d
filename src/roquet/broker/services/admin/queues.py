"""Units of a consume queue, as operators look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.broker.api.admin import UnitsResult
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.services.access import Access
from roquet.broker.services.light_reads import is_judged, is_visible, may_read
from roquet.protocol import properties as props

if TYPE_CHECKING:
    from roquet.broker.api.admin import UnitsRequest
    from roquet.broker.api.caller import Caller
    from roquet.broker.clients.registry import Registry
    from roquet.broker.services.light_reads import MayRead
    from roquet.model.subscription import SubscriptionData
    from roquet.store.store import MessageStore
    from roquet.store.tables.topics import TopicTable

COUNT_MAX = 256


class QueueUnits:
    """Shows units of a queue, and whether a group would get them."""

    def __init__(
        self,
        topics: TopicTable,
        registry: Registry,
        store: MessageStore,
        access: Access | None = None,
    ) -> None:
        self._access = access or Access()
        self._topics = topics
        self._registry = registry
        self._store = store

    def show(self, request: UnitsRequest, caller: Caller) -> UnitsResult:
        """Return at most 256 units from an index on. Raises Refusal.

        Units of messages that the caller may not read are left out.
        """
        topic, queue_id, index = request.topic, request.queue_id, request.index
        known = self._topics.get(topic) is not None and queue_id >= 0
        end = self._store.max_offset(topic, queue_id) if known else 0
        if end == 0:
            # RocketMQ has no file for a queue before its first message.
            raise Refusal(Reason.FAILED, f"{queue_id}@{topic} is not exist!")
        if index < 0 or request.count <= 0:
            text = f"index {index} or count {request.count} is out of range"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        group = request.group
        subscription = self._registry.subscription(group, topic) if group else None
        units = None
        if index < end:
            found = self._store.units(topic, queue_id, index, min(request.count, COUNT_MAX))
            allowed = may_read(self._access, caller)
            if is_judged(topic, allowed):
                found = [unit for unit in found if self._is_visible(unit, topic, allowed)]
            units = [self._unit(unit, subscription) for unit in found]
        return UnitsResult(
            min_index=self._store.min_offset(topic, queue_id),
            max_index=end,
            units=units,
            subscription=subscription,
        )

    def _is_visible(self, unit: tuple[int, int, int], topic: str, allowed: MayRead | None) -> bool:
        record = self._store.record(*unit[:2])
        return record is not None and is_visible(record, topic, allowed)

    def _unit(
        self, unit: tuple[int, int, int], subscription: SubscriptionData | None
    ) -> dict[str, Any]:
        physical, size, code = unit
        shown: dict[str, Any] = {
            # Without a subscription there is nothing to judge by: false, as Java says.
            "eval": subscription is not None and subscription.takes_code(code),
            "physicOffset": physical,
            "physicSize": size,
            "tagsCode": code,
        }
        record = self._store.record(physical, size)
        if record is None:
            shown["msg"] = "message not in the log any more"
        elif subscription is not None:
            tag = props.read(record.properties).get(props.TAGS)
            shown["eval"] = shown["eval"] and subscription.takes_tag(tag)
        return shown

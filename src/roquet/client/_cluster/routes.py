"""Which queues a topic has for senders and for readers, and where brokers are. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.model.queue import MessageQueue
from roquet.model.route import MASTER_ID, TopicRoute
from roquet.model.topic import can_read, can_write

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO_CREATED_QUEUES_MAX = 4
"""Queues that a topic gets which the first send creates."""


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues one may send to: writable, on a broker name that has a master."""
    if route.order_topic_conf:
        return _ordered_queues(topic, route.order_topic_conf)
    with_master = {broker.broker_name for broker in route.brokers if broker.master is not None}
    return tuple(
        sorted(
            MessageQueue(topic, data.broker_name, number)
            for data in route.queues
            if can_write(data.perm) and data.broker_name in with_master
            for number in range(data.write_queues)
        )
    )


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues one may read, in the order that every client balances by."""
    return tuple(
        sorted(
            MessageQueue(topic, data.broker_name, number)
            for data in route.queues
            if can_read(data.perm)
            for number in range(data.read_queues)
        )
    )


def auto_created(route: TopicRoute) -> TopicRoute:
    """Return what a topic's route will be once a send has created it after a template."""
    return dataclasses.replace(
        route,
        queues=tuple(
            dataclasses.replace(
                data,
                read_queues=min(AUTO_CREATED_QUEUES_MAX, data.read_queues),
                write_queues=min(AUTO_CREATED_QUEUES_MAX, data.read_queues),
            )
            for data in route.queues
        ),
    )


def _ordered_queues(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    found: list[MessageQueue] = []
    for part in conf.split(";"):
        name, _, count = part.partition(":")
        if name and count.isascii() and count.isdigit():
            found += [MessageQueue(topic, name, number) for number in range(int(count[:5]))]
    return tuple(found)


class RouteBook:
    """The routes known so far. A failed refresh leaves them; a new one says if it differs."""

    def __init__(self) -> None:
        """Know nothing."""
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._publish: dict[str, tuple[MessageQueue, ...]] = {}

    def get(self, topic: str) -> TopicRoute | None:
        """Return a topic's route as last heard."""
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        """Return the topics with a route."""
        return list(self._routes)

    def update(self, topic: str, route: TopicRoute) -> bool:
        """Keep a route; tell whether queues or brokers differ from before."""
        tidy = dataclasses.replace(
            route,
            queues=tuple(sorted(route.queues, key=lambda data: data.broker_name)),
            brokers=tuple(sorted(route.brokers, key=lambda data: data.broker_name)),
        )
        for broker in tidy.brokers:
            if broker.addresses:
                self._brokers[broker.broker_name] = dict(broker.addresses)
        changed = self._routes.get(topic) != tidy
        if changed:
            self._routes[topic] = tidy
            self._publish.pop(topic, None)
        return changed

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the queues to send to, None for a topic without a route; computed once a route."""
        queues = self._publish.get(topic)
        if queues is None:
            route = self._routes.get(topic)
            if route is None:
                return None
            queues = self._publish[topic] = publish_queues(topic, route)
        return queues

    def computed_queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the queues to send to where they are computed already. Any thread may ask."""
        return self._publish.get(topic)

    def forget(self, topic: str) -> None:
        """Drop a topic's route, so that the next use asks for it."""
        self._routes.pop(topic, None)
        self._publish.pop(topic, None)

    def drop_unused_brokers(self) -> None:
        """Forget the addresses of brokers that no route names any more."""
        used = {data.broker_name for route in self._routes.values() for data in route.brokers}
        for name in self._brokers.keys() - used:
            del self._brokers[name]

    def master(self, broker_name: str) -> str | None:
        """Return the address of a broker's master."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Return the address to read from: that id, else the next one, else any (client.md)."""
        addresses = self._brokers.get(broker_name, {})
        found = addresses.get(broker_id)
        if found is None and broker_id != MASTER_ID:
            found = addresses.get(broker_id + 1)
        if found is None and addresses:
            found = addresses[min(addresses)]
        return found

    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Return every known address by broker name and id."""
        return self._brokers

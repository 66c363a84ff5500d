"""The clients of one port of this proxy, as members that other proxies are told of."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from roquet.proxy import messages as pb
from roquet.proxy.groups.notices import GRPC, REMOTING, Channel, Notice, subscriptions_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.base.clock import Clock
    from roquet.protocol.bodies.clients import ConsumerData
    from roquet.proxy.groups.members import GroupMembers
    from roquet.proxy.services.clients import Session


@dataclasses.dataclass(frozen=True, slots=True)
class OwnMembers:
    """What the ports note of their clients. `host` and the ports are this proxy's."""

    members: GroupMembers
    clock: Clock
    host: str
    grpc_port: int
    remoting_port: int

    # --- gRPC ------------------------------------------------------------------------------------

    def grpc_registered(self, session: Session, consumer: ConsumerData | None) -> None:
        """Note a client of gRPC that is in a group now, or in none."""
        group = None if consumer is None else consumer.group
        self.members.leave_others(session.key, group)
        if consumer is not None:
            who = session.client_id, session.language, session.version
            channel = Channel(
                proxy_host=self.host,
                client=session.address,
                proxy=f"{self.host}:{self.grpc_port}",
                protocol=GRPC,
                extra=_settings_text(session.settings),
            )
            self._put(session.key, who, channel, consumer)

    def grpc_left(self, session: Session) -> None:
        """Note that a client of gRPC has gone."""
        self.members.leave(session.key)

    # --- remoting --------------------------------------------------------------------------------

    def remoting_registered(
        self,
        key: int,
        who: tuple[str, str, int],
        address: str,
        consumers: Iterable[ConsumerData],
    ) -> None:
        """Note the groups of a remoting client (id, language, version) that brokers have taken."""
        for consumer in consumers:
            channel = Channel(
                proxy_host=self.host,
                client=address,
                proxy=f"{self.host}:{self.remoting_port}",
                protocol=REMOTING,
                extra=subscriptions_text(consumer),
            )
            self._put(key, who, channel, consumer)

    def _put(
        self, key: int, who: tuple[str, str, int], channel: Channel, consumer: ConsumerData
    ) -> None:
        known = self.members.channel(key, consumer.group)
        if known is not None:
            # A client's next connection has another port; others know it by the first.
            channel = dataclasses.replace(channel, client=known.client)
        notice = Notice(
            is_member=True,
            client_id=who[0],
            language=who[1],
            version=who[2],
            consumer=consumer,
            proxy_id=self.members.proxy_id,
            channel=channel,
            at_brokers=channel.protocol == REMOTING,
        )
        self.members.put(key, notice, self.clock.steady_ms())


def _settings_text(settings: bytes) -> str | None:
    if not settings:
        return None
    message: Any = pb.Settings.FromString(settings)
    return json_format.MessageToJson(message, indent=None)

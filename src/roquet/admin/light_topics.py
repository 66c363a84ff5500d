"""Light topics: counters of brokers, parents, subscriptions, and how far groups are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.calls import command, read
from roquet.base.arguments import checked
from roquet.protocol.bodies import light_topics as bodies
from roquet.protocol.codes import RequestCode
from roquet.protocol.headers import light as headers

if TYPE_CHECKING:
    from roquet.admin.calls import Calls
    from roquet.protocol.command import Command


@checked
class LightTopics:
    """Light topics of a cluster; each question goes to one broker, by its address.

    Every call raises Refused (17 for a topic, 26 for a group that is not there, 29 for one without
    light topics), Unreachable and OutcomeUnknown.
    """

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls

    async def brokers_of(self, parent: str) -> dict[str, str]:
        """Return name -> address of the masters that a parent topic is on, by name."""
        route = await self._calls.route(parent)
        found = {it.broker_name: it.master for it in route.brokers}
        return {name: at for name, at in sorted(found.items()) if at is not None}

    async def of_broker(self, address: str) -> bodies.BrokerLight:
        """Return a broker's counters."""
        answer = await self._ask(address, command(RequestCode.GET_BROKER_LITE_INFO))
        return read(bodies.BrokerLight.decode, answer)

    async def of_parent(self, address: str, parent: str) -> bodies.ParentLight:
        """Return what a broker knows of a parent topic."""
        header = headers.ParentTopicInfoRequest(topic=parent)
        answer = await self._ask(address, command(RequestCode.GET_PARENT_TOPIC_INFO, header))
        return read(bodies.ParentLight.decode, answer)

    async def of_topic(self, address: str, parent: str, name: str) -> bodies.LightTopic:
        """Return offsets and subscribers of a light topic at a broker."""
        header = headers.LightTopicInfoRequest(parent_topic=parent, lite_topic=name)
        answer = await self._ask(address, command(RequestCode.GET_LITE_TOPIC_INFO, header))
        return read(bodies.LightTopic.decode, answer)

    async def of_client(
        self, address: str, parent: str, group: str, client: str, *, most: int = 1000
    ) -> bodies.LightClient:
        """Return a client's subscription at a broker, at most so many light topics of it."""
        header = headers.LightClientInfoRequest(
            parent_topic=parent, group=group, client_id=client, max_count=most
        )
        answer = await self._ask(address, command(RequestCode.GET_LITE_CLIENT_INFO, header))
        return read(bodies.LightClient.decode, answer)

    async def of_group(
        self, address: str, group: str, name: str | None = None, *, top: int = 20
    ) -> bodies.LightGroup:
        """Return how far a group is behind at a broker, in one light topic or in all."""
        header = headers.LightGroupInfoRequest(group=group, lite_topic=name, top_k=top)
        answer = await self._ask(address, command(RequestCode.GET_LITE_GROUP_INFO, header))
        return read(bodies.LightGroup.decode, answer)

    async def dispatch(self, address: str, group: str, client: str | None = None) -> None:
        """Have a broker note everything that is there for a client, or for all of a group."""
        header = headers.TriggerLightDispatchRequest(group=group, client_id=client)
        await self._ask(address, command(RequestCode.TRIGGER_LITE_DISPATCH, header))

    async def _ask(self, address: str, request: Command) -> Command:
        return await self._calls.ask(address, request)

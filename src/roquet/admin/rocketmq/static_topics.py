"""Static topics of RocketMQ's brokers: read, made and moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.calls import Brokers, command, read
from roquet.admin.rocketmq import static_plans
from roquet.base.arguments import checked
from roquet.base.errors import UsageError
from roquet.protocol import names
from roquet.protocol.bodies import stats
from roquet.protocol.bodies.rocketmq.static_topics import decode_static_topic, encode_mapping
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.headers.admin import (
    CreateTopicRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.admin.calls import Calls
    from roquet.protocol.bodies.rocketmq.static_topics import StaticPlan, StaticTopic


@checked
class StaticTopics:
    """Topics with a fixed number of queues that may move from broker to broker.

    What a change comes to is a plan (`static_plans`); brokers are named by name. Every call raises
    UsageError, NotFound, Refused (3 for brokers without static topics), Unreachable and
    OutcomeUnknown.
    """

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls
        self._brokers = Brokers(calls)

    async def get(self, topic: str) -> dict[str, StaticTopic]:
        """Return broker name -> the topic there, of all masters that have it."""
        header = GetTopicConfigRequest(topic=topic, logical=True)
        request = command(RequestCode.GET_TOPIC_CONFIG, header)
        skip = (ResponseCode.TOPIC_NOT_EXIST,)
        # A change by half of the mappings would be wrong: a broker that is away raises.
        masters = await self._brokers.masters((await self._brokers.known()).brokers)
        return {
            name: read(decode_static_topic, answer)
            async for name, answer in self._brokers.each(masters, request, skip=skip, change=True)
        }

    async def neighbours(self, brokers: Iterable[str]) -> list[str]:
        """Return the names of all brokers of the clusters that these are in."""
        known = (await self._brokers.known()).brokers
        clusters = {known[name].cluster for name in brokers if name in known}
        return sorted(name for name, data in known.items() if data.cluster in clusters)

    async def create(self, plan: StaticPlan, *, force: bool = False) -> None:
        """Tell all brokers of a plan what they have of a topic; those without queues as well.

        With `force` a broker takes what its own mapping contradicts.
        """
        plan = static_plans.with_others(plan, await self.neighbours(plan.brokers))
        await self._tell(plan, sorted(plan.brokers), force=force)

    async def move(self, plan: StaticPlan, *, force: bool = False) -> None:
        """Move queues: the new place takes messages before the old one refuses them.

        Then the offsets are decided at which the queues go on. A move that is cut short is carried
        on by the same plan.
        """
        plan = static_plans.with_others(plan, await self.neighbours(plan.brokers))
        await self._tell(plan, sorted(plan.into), force=force)
        await self._tell(plan, sorted(plan.out_of), force=force)
        for name in sorted(plan.out_of):
            plan = static_plans.decided(plan, name, await self._ends(plan.topic, name))
        await self._tell(plan, sorted(plan.into), force=force)
        rest = set(plan.brokers) - plan.into - plan.out_of
        await self._tell(plan, sorted(rest), force=force)

    async def _ends(self, topic: str, broker: str) -> Mapping[tuple[str, int], int]:
        request = command(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic=topic))
        answer = await self._calls.ask(await self._brokers.address(broker), request)
        offsets = read(stats.TopicStats.decode, answer).offsets
        return {(it.broker_name, it.queue_id): at.max_offset for it, at in offsets.items()}

    async def _tell(self, plan: StaticPlan, brokers: Iterable[str], *, force: bool) -> None:
        told = list(brokers)
        if not told:
            return
        wrong = names.check_topic(plan.topic)
        if wrong is not None:
            raise UsageError(wrong)
        for name, address in (await self._brokers.masters(told)).items():
            it = plan.brokers[name]
            header = CreateTopicRequest(
                topic=plan.topic,
                default_topic=names.AUTO_CREATE_TOPIC,
                read_queue_nums=it.config.read_queues,
                write_queue_nums=it.config.write_queues,
                perm=int(it.config.perm),
                topic_filter_type=str(it.config.filter_type),
                topic_sys_flag=it.config.sys_flag,
                order=it.config.order,
                force=force,
            )
            body = encode_mapping(static_plans.mapping_of(name, it))
            request = command(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, body)
            await self._calls.ask(address, request)

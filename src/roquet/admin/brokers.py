"""Brokers: who there is, state, settings, replication, statistics, upkeep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.calls import Brokers as Reach
from roquet.admin.calls import command, read, read_header, tell_name_servers
from roquet.base.arguments import checked
from roquet.base.errors import Refused, Unreachable, UsageError
from roquet.base.properties_file import read_properties, write_properties
from roquet.model.route import MASTER_ID
from roquet.model.topic import can_write
from roquet.protocol.bodies import clients, replication, stats, timers
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.admin import (
    GetAllProducerInfoRequest,
    GetConsumeStatsInBroker,
    GetProducerConnectionListRequest,
    ViewBrokerStatsDataRequest,
)
from roquet.protocol.headers.broker import ResetMasterFlushOffsetRequest
from roquet.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    GetRouteInfoRequest,
    UnRegisterBrokerRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from roquet.protocol.names import SELF_TEST_TOPIC
from roquet.protocol.registration import departed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.admin.calls import Calls
    from roquet.protocol.bodies.clients import Connection, ProducerInfo
    from roquet.protocol.bodies.replication import HaStatusBody
    from roquet.protocol.bodies.routes import ClusterInfo
    from roquet.protocol.bodies.stats import BrokerStatsItem, ConsumeStatsList, GroupLag
    from roquet.protocol.bodies.timers import TimerMetricsBody
    from roquet.protocol.header import Header


@checked
class Brokers:
    """Brokers of a cluster: one is named by its name (then its master) or its address."""

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls
        self._reach = Reach(calls)

    async def cluster(self) -> ClusterInfo:
        """Return all brokers that the name server knows. Raises Unreachable."""
        return await self._reach.known()

    async def masters(self, *, cluster: str | None = None) -> dict[str, str]:
        """Return broker name -> address of all masters, or of a cluster's.

        Raises NotFound where there is none, Unreachable.
        """
        return await self._reach.masters(cluster=cluster)

    async def runtime(self, broker: str) -> dict[str, str]:
        """Return what a broker says about itself, by key. Raises UsageError, Refused, Unreachable.

        The keys are those of RocketMQ's `brokerStatus`.
        """
        answer = await self._ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        return read(stats.decode_kv_table, answer)

    async def config(self, broker: str) -> dict[str, str]:
        """Return a broker's settings, by Java name. Raises as `runtime` does."""
        return read(read_properties, await self._ask(broker, RequestCode.GET_BROKER_CONFIG))

    async def set_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker, all or none. Raises as `runtime` does."""
        if not changes:
            raise UsageError("no setting is given")
        body = write_properties(changes)
        await self._ask(broker, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def set_role(self, broker: str, role: str, broker_id: int) -> str:
        """Have a running broker take a role, `ASYNC_MASTER`, `SYNC_MASTER` or `SLAVE`.

        A master's `broker_id` is 0, a slave's is not. Returns what went wrong without making the
        change fail, mostly nothing. A change takes seconds when a slave or a request is slow: it
        goes on when the answer comes too late. Raises as `runtime` does, and UsageError for a
        master beside one that its group has and that answers.
        """
        if broker_id == MASTER_ID:
            await self._no_other_master(await self._reach.address(broker))
        changes = {"brokerRole": role, "brokerId": str(broker_id)}
        code, body = RequestCode.UPDATE_BROKER_CONFIG, write_properties(changes)
        return (await self._ask(broker, code, body=body)).remark or ""

    async def _no_other_master(self, address: str) -> None:
        """Raise UsageError where an address would be the second master of its group.

        Both would give out the same offsets. One that does not answer is taken for lost, and one
        that follows already for a name that the name servers have not heard the end of.
        """
        groups = (await self.cluster()).brokers.values()
        for data in (it for it in groups if address in it.addresses.values()):
            master = data.master
            if master is None or master == address:
                continue
            try:
                held = (await self.config(master)).get("brokerRole")
            except Unreachable:
                continue
            if held != "SLAVE":
                raise UsageError(
                    f"{data.broker_name} has a master that answers, {master}: make it a slave"
                    f" first (roquet ha role {master} slave), or stop it for good"
                )

    async def ha_status(self, broker: str) -> HaStatusBody:
        """Return a broker's replication at this moment. Raises as `runtime` does."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_HA_STATUS)
        return read(replication.HaStatusBody.decode, answer)

    async def statistics(self, broker: str, name: str, key: str) -> dict[str, BrokerStatsItem]:
        """Return sums of the last minute, hour and day of one set, `TOPIC_PUT_NUMS` say, and key.

        The keys are statsMinute, statsHour and statsDay. Raises as `runtime` does.
        """
        header = ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
        answer = await self._ask(broker, RequestCode.VIEW_BROKER_STATS_DATA, header)
        return read(stats.decode_broker_stats, answer)

    async def consume_stats(self, broker: str, *, ordered: bool = False) -> ConsumeStatsList:
        """Return how far all groups are on a broker; `ordered`: in ordered topics alone.

        Raises as `runtime` does.
        """
        header = GetConsumeStatsInBroker(is_order=ordered)
        answer = await self._ask(broker, RequestCode.GET_BROKER_CONSUME_STATS, header)
        return read(stats.ConsumeStatsList.decode, answer)

    async def group_lags(self, broker: str) -> dict[str, GroupLag] | None:
        """Return by how many messages each group is behind on a broker, by one request.

        None of a broker that answers no such question, as RocketMQ's. Raises as `runtime` does.
        """
        if (await self.runtime(broker)).get(stats.GROUP_LAGS) != "true":
            return None
        header = GetConsumeStatsInBroker(is_order=False, lag_only=True)
        answer = await self._ask(broker, RequestCode.GET_BROKER_CONSUME_STATS, header)
        return read(stats.decode_group_lags, answer)

    async def timers(self, broker: str) -> TimerMetricsBody:
        """Return how many timer messages wait, by topic. Raises as `runtime` does."""
        answer = await self._ask(broker, RequestCode.GET_TIMER_METRICS)
        return read(timers.TimerMetricsBody.decode, answer)

    async def producers(self, broker: str) -> dict[str, tuple[ProducerInfo, ...]]:
        """Return the producers that are connected, by group. Raises as `runtime` does."""
        header = GetAllProducerInfoRequest()
        answer = await self._ask(broker, RequestCode.GET_ALL_PRODUCER_INFO, header)
        return read(clients.decode_producer_table, answer)

    async def producer_connections(self, broker: str, group: str) -> tuple[Connection, ...]:
        """Return the members of one producer group. Raises as `runtime` does."""
        header = GetProducerConnectionListRequest(producer_group=group)
        answer = await self._ask(broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        return read(clients.decode_producer_connections, answer)

    # --- traffic away and back ---------------------------------------------------------------

    async def drain(self, broker_name: str) -> int:
        """Have all name servers say that nobody writes to a broker; return how many topics.

        Consumers go on. The change is lost when the broker or a name server starts anew. Raises
        UsageError for an unknown name, Refused, Unreachable.
        """
        header = WipeWritePermOfBrokerRequest(broker_name=broker_name)
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        answers = await self._every_name_server(broker_name, code, header)
        counts = [read_header(WipeWritePermOfBrokerResponse, it).wipe_topic_count for it in answers]
        return max(counts, default=0)

    async def drained(self) -> frozenset[str]:
        """Return the names of brokers that nobody writes to, as name servers say.

        Raises Unreachable.
        """
        try:
            route = await self._calls.route(SELF_TEST_TOPIC)
        except Refused:
            return frozenset()
        named = {it.broker_name for it in route.queues}
        return frozenset(named - {it.broker_name for it in route.queues if can_write(it.perm)})

    async def departed(self) -> tuple[str, ...]:
        """Return the names of brokers that left and have not come back, as the name server recalls.

        None for a name server that does not keep who left (RocketMQ's), and when no broker at all
        is there any more. Raises Unreachable.
        """
        header = GetRouteInfoRequest(topic=SELF_TEST_TOPIC, accept_standard_json_only=True)
        ext = header.encode() | {departed.ASK: "true"}
        request = Command(code=int(RequestCode.GET_ROUTEINFO_BY_TOPIC), ext=ext)
        try:
            answer = await self._calls.ask_name_server(request)
        except Refused:
            return ()
        return tuple(departed.read(answer.ext) or ())

    async def forget(self, broker_name: str) -> None:
        """Have all name servers miss a broker no more that left. Raises Refused, Unreachable."""
        header = UnRegisterBrokerRequest(
            broker_name=broker_name, broker_addr="", cluster_name="", broker_id=0
        )
        ext = header.encode() | {departed.ASK: "true"}
        request = Command(code=int(RequestCode.UNREGISTER_BROKER), ext=ext)
        await tell_name_servers(self._calls, request)

    async def undrain(self, broker_name: str) -> int:
        """Undo `drain`; return how many topics. Raises as `drain` does."""
        header = AddWritePermOfBrokerRequest(broker_name=broker_name)
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        answers = await self._every_name_server(broker_name, code, header)
        counts = [read_header(AddWritePermOfBrokerResponse, it).add_topic_count for it in answers]
        return max(counts, default=0)

    # --- upkeep ------------------------------------------------------------------------------

    async def clean_queues(self, broker: str) -> None:
        """Delete consume-queue files whose messages are gone. Raises as `runtime` does."""
        await self._ask(broker, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_topics(self, broker: str) -> None:
        """Delete queues of topics that are not there any more. Raises as `runtime` does."""
        await self._ask(broker, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired(self, broker: str) -> None:
        """Delete files of the log that are older than the store keeps. Raises as `runtime` does."""
        await self._ask(broker, RequestCode.DELETE_EXPIRED_COMMITLOG)

    async def set_master_flushed(self, broker: str, offset: int) -> None:
        """Have a slave believe that its master's log is durable up to an offset.

        Raises as `runtime` does.
        """
        header = ResetMasterFlushOffsetRequest(master_flush_offset=offset)
        await self._ask(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    async def move_pop_records(self, broker: str) -> None:
        """Have a broker move records of pops from its key-value store to files.

        A broker that keeps them in files does nothing. Raises as `runtime` does.
        """
        await self._ask(broker, RequestCode.POP_ROLLBACK)

    # --- inside ------------------------------------------------------------------------------

    async def _ask(
        self, broker: str, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Command:
        address = await self._reach.address(broker)
        return await self._calls.ask(address, command(code, header, body))

    async def _every_name_server(
        self, broker_name: str, code: RequestCode, header: Header
    ) -> list[Command]:
        await self._reach.masters([broker_name])
        return await tell_name_servers(self._calls, command(code, header))

"""What RocketMQ's brokers have beside ours: containers, limits of cold reads, RocksDB."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from roquet.admin.calls import command, read
from roquet.base.arguments import checked
from roquet.base.errors import UsageError
from roquet.base.properties_file import write_properties
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.codes import RequestCode
from roquet.protocol.headers import rocketmq as headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.admin.calls import Calls
    from roquet.protocol.bodies.fields import Json
    from roquet.protocol.command import Command
    from roquet.protocol.header import Header


class RocksDbTable(enum.StrEnum):
    """A table of a broker that RocketMQ may keep in RocksDB."""

    TOPICS = "topics"
    GROUPS = "subscriptionGroups"
    OFFSETS = "consumerOffsets"


CHECK_FAILED = 3
"""How a check of queues in RocksDB ends that could not be begun."""


@checked
class RocketmqExtras:
    """Requests to RocketMQ's brokers and containers, each named by its address.

    Every call raises Refused (3 where a server has no such thing), Unreachable and OutcomeUnknown.
    """

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls

    # --- containers --------------------------------------------------------------------------

    async def start_broker(self, container: str, file: str) -> None:
        """Have a container start a broker from a property file on its own disk."""
        await self._ask(container, RequestCode.ADD_BROKER, headers.AddBrokerRequest(file=file))

    async def stop_broker(self, container: str, cluster: str, broker: str, broker_id: int) -> None:
        """Have a container stop one of its brokers."""
        if broker_id < 0:
            raise UsageError(f"a broker's id is not negative, as {broker_id} is")
        header = headers.RemoveBrokerRequest(
            cluster=cluster, broker_name=broker, broker_id=broker_id
        )
        await self._ask(container, RequestCode.REMOVE_BROKER, header)

    # --- cold reads --------------------------------------------------------------------------

    async def cold_reads(self, broker: str) -> Json | None:
        """Return limits and counters of cold reads by Java name, None where there is no table."""
        answer = await self._ask(broker, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        return read(fastjson.read_object, answer) if answer.body else None

    async def limit_cold_reads(self, broker: str, limits: Mapping[str, int]) -> None:
        """Set how many bytes groups may read from the disk in a second, by group."""
        if not limits:
            raise UsageError("no group is given")
        body = write_properties({group: str(limit) for group, limit in limits.items()})
        await self._ask(broker, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body)

    async def unlimit_cold_reads(self, broker: str, group: str) -> None:
        """Take the limit of a group away, so that it has the common one."""
        if not group:
            raise UsageError("no group is given")
        body = group.encode()
        await self._ask(broker, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=body)

    async def set_read_ahead(self, broker: str, *, random: bool) -> str | None:
        """Have the kernel read ahead in files of the log, or not where reads are random.

        Returns the broker's own words.
        """
        header = headers.ReadAheadRequest(mode=int(random))
        return (await self._ask(broker, RequestCode.SET_COMMITLOG_READ_MODE, header)).remark

    # --- RocksDB -----------------------------------------------------------------------------

    async def switch_timer_engine(self, broker: str, *, rocksdb: bool) -> None:
        """Have timer messages kept in RocksDB, or in the files of the wheel."""
        header = headers.SwitchTimerEngineRequest(engine="R" if rocksdb else "F")
        await self._ask(broker, RequestCode.SWITCH_TIMER_ENGINE, header)

    async def export_rocksdb(self, broker: str, tables: Iterable[RocksDbTable]) -> None:
        """Have a broker write tables from RocksDB to the JSON files of its configuration."""
        kinds = "".join(f"{table};" for table in tables)
        if not kinds:
            raise UsageError("no table is given")
        header = headers.ExportRocksDbRequest(kinds=kinds)
        await self._ask(broker, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, header)

    async def check_rocksdb_queues(
        self, broker: str, topic: str, since_ms: int
    ) -> tuple[int, str | None]:
        """Have a broker compare queues in RocksDB with those in files; it logs what it finds.

        An empty topic stands for all; what was stored before `since_ms` is passed over. Returns
        how it stands, CHECK_FAILED say, and the broker's own words.
        """
        header = headers.CheckQueuesInRocksDbRequest(topic=topic, since_ms=since_ms)
        answer = await self._ask(broker, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, header)
        return read(_status, answer)

    async def _ask(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Command:
        return await self._calls.ask(address, command(code, header, body))


def _status(data: bytes) -> tuple[int, str | None]:
    source = fastjson.read_object(data)
    return fields.i32(source, "checkStatus"), fields.optional_text(source, "checkResult")

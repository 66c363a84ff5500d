"""RocketMQ's controllers, which give brokers their roles; and the epochs of such brokers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.admin.calls import Unreadable, command, read, read_header, tell_each
from roquet.base.arguments import checked
from roquet.base.errors import UsageError
from roquet.base.properties_file import read_properties, write_properties
from roquet.protocol.bodies.rocketmq import controllers as bodies
from roquet.protocol.codes import RequestCode
from roquet.protocol.headers.rocketmq import (
    CleanBrokerDataRequest,
    ControllerMetadataResponse,
    ElectMasterRequest,
    ElectMasterResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roquet.admin.calls import Calls
    from roquet.protocol.bodies.rocketmq.controllers import Epochs, ReplicaSet


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The outcome of an election."""

    master_address: str | None
    master_epoch: int | None
    set_epoch: int | None
    members: Mapping[int, str]
    """Id -> address of the brokers of the set; a master's id is 0."""


@checked
class Controllers:
    """RocketMQ's controllers, each named by its address.

    Every call raises Refused (3 for what is no controller), Unreachable and OutcomeUnknown. What
    the leader has to do is asked of the leader, whichever controller is named.
    """

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls

    async def metadata(self, controller: str) -> ControllerMetadataResponse:
        """Return group, leader and peers."""
        request = command(RequestCode.CONTROLLER_GET_METADATA_INFO)
        return read_header(ControllerMetadataResponse, await self._calls.ask(controller, request))

    async def config(self, controller: str) -> dict[str, str]:
        """Return a controller's settings, by Java name."""
        request = command(RequestCode.GET_CONTROLLER_CONFIG)
        return read(read_properties, await self._calls.ask(controller, request))

    async def set_config(self, controllers: Iterable[str], changes: Mapping[str, str]) -> None:
        """Change settings of running controllers; all are told, also behind one that refuses."""
        if not changes:
            raise UsageError("no setting is given")
        body = write_properties(changes)
        request = command(RequestCode.UPDATE_CONTROLLER_CONFIG, None, body)
        await tell_each(self._calls, list(controllers), request, "controllers")

    async def replicas(self, controller: str, brokers: Iterable[str]) -> dict[str, ReplicaSet]:
        """Return broker name -> replicas in sync and not; unknown names are left out."""
        body = bodies.encode_broker_names(brokers)
        request = command(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
        answer = await self._calls.ask(await self._leader(controller), request)
        return read(bodies.decode_replica_sets, answer)

    async def elect(self, controller: str, cluster: str, broker: str, broker_id: int) -> Elected:
        """Have a broker of a set become its master."""
        header = ElectMasterRequest(
            cluster=cluster,
            broker_name=broker,
            broker_id=broker_id,
            designated=True,
            time_ms=self._calls.clock.now_ms(),
        )
        request = command(RequestCode.CONTROLLER_ELECT_MASTER, header)
        answer = await self._calls.ask(await self._leader(controller), request)
        found = read_header(ElectMasterResponse, answer)
        return Elected(
            master_address=found.master_address,
            master_epoch=found.master_epoch,
            set_epoch=found.set_epoch,
            members=read(bodies.decode_members, answer),
        )

    async def forget(
        self,
        controller: str,
        broker: str,
        *,
        cluster: str | None = None,
        ids: Sequence[int] = (),
        living: bool = False,
    ) -> None:
        """Have the controller forget replicas of a set, all of them where no ids are given.

        Only with `living` those that are alive.
        """
        header = CleanBrokerDataRequest(
            cluster=cluster,
            broker_name=broker,
            ids=";".join(map(str, ids)) or None,
            living=living,
            time_ms=self._calls.clock.now_ms(),
        )
        request = command(RequestCode.CLEAN_BROKER_DATA, header)
        await self._calls.ask(await self._leader(controller), request)

    async def epochs(self, broker: str) -> Epochs:
        """Return the epochs of a broker's log, by its address."""
        request = command(RequestCode.GET_BROKER_EPOCH_CACHE)
        return read(bodies.decode_epochs, await self._calls.ask(broker, request))

    async def _leader(self, controller: str) -> str:
        found = (await self.metadata(controller)).leader_address
        if not found:
            raise Unreadable(f"the controllers of {controller} have no leader now")
        return found

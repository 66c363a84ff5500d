"""Accounts of access control 1.0 (`plain_acl.yml`), on every master."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.admin.calls import Brokers, read
from roquet.base.arguments import checked
from roquet.base.errors import Refused
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.bodies.clients import HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from roquet.admin.calls import Calls


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccountInfo:
    """An account as brokers show it: without its secret. Rights are `topic=PUB|SUB` and so on."""

    access_key: str
    admin: bool
    default_topic: str
    default_group: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    white_address: str


@checked
class Accounts:
    """Accounts of a cluster."""

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls
        self._brokers = Brokers(calls)

    async def list_of(self, broker: str) -> tuple[AccountInfo, ...]:
        """Return the accounts that a broker has. Raises UsageError, Refused, Unreachable."""
        address = await self._brokers.address(broker)
        request = Command(code=int(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))
        return read(_accounts, await self._calls.ask(address, request))

    async def is_known(self, broker: str) -> bool:
        """Tell whether a broker takes what this client signs: a heartbeat of nobody, which any may.

        One that checks nobody takes it, too. Raises UsageError, Unreachable, OutcomeUnknown.
        """
        address = await self._brokers.address(broker)
        body = HeartbeatData(client_id="roquet-sign-in").encode()
        request = Command(code=int(RequestCode.HEART_BEAT), body=body)
        try:
            await self._calls.ask(address, request)
        except Refused:
            return False
        return True

    async def put(self, ext: Mapping[str, str]) -> None:
        """Make or change an account; `ext` has the fields of `mqadmin updateAclConfig`.

        accessKey, secretKey, admin, defaultTopicPerm, defaultGroupPerm, topicPerms, groupPerms,
        whiteRemoteAddress. Raises Refused, Unreachable, OutcomeUnknown.
        """
        await self._tell(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, ext)

    async def delete(self, access_key: str) -> None:
        """Delete an account. Raises Refused with code 210 where there is none, as `put` else."""
        await self._tell(RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key})

    async def set_white_list(self, addresses: tuple[str, ...]) -> None:
        """Replace the addresses that need no account. Raises as `put` does."""
        ext = {"globalWhiteAddrs": ",".join(addresses)}
        await self._tell(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, ext)

    async def _tell(self, code: RequestCode, ext: Mapping[str, str]) -> None:
        request = Command(code=int(code), ext=dict(ext))
        async for _ in self._brokers.each(await self._brokers.masters(), request, change=True):
            pass


def _accounts(body: bytes) -> tuple[AccountInfo, ...]:
    source = fastjson.read_object(body)
    return tuple(_account(it) for it in fields.objects(source, "plainAccessConfigs"))


def _account(source: Mapping[str, Any]) -> AccountInfo:
    return AccountInfo(
        access_key=fields.text(source, "accessKey"),
        admin=fields.boolean(source, "admin"),
        default_topic=fields.text(source, "defaultTopicPerm"),
        default_group=fields.text(source, "defaultGroupPerm"),
        topics=tuple(fields.texts(source, "topicPerms")),
        groups=tuple(fields.texts(source, "groupPerms")),
        white_address=fields.text(source, "whiteRemoteAddress"),
    )

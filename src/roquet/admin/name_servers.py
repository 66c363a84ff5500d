"""Name servers: settings and the key-value table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.calls import command, read, read_header, tell_name_servers
from roquet.base.arguments import checked
from roquet.base.errors import UsageError
from roquet.base.properties_file import read_properties, write_properties
from roquet.protocol.bodies import stats
from roquet.protocol.codes import RequestCode
from roquet.protocol.headers.namesrv import (
    DeleteKVConfigRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.admin.calls import Calls
    from roquet.protocol.command import Command


@checked
class NameServers:
    """The name servers of a cluster. Each has its own tables: changes go to all of them."""

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, the one in use first."""
        return self._calls.name_servers

    async def config(self) -> dict[str, dict[str, str]]:
        """Return address -> settings by Java name. Raises Refused, Unreachable, OutcomeUnknown."""
        return {address: await self.config_of(address) for address in self.addresses}

    async def config_of(self, address: str) -> dict[str, str]:
        """Return the settings of one name server. Raises as `config` does."""
        request = command(RequestCode.GET_NAMESRV_CONFIG)
        return read(read_properties, await self._calls.ask(address, request))

    async def set_config(self, changes: Mapping[str, str]) -> None:
        """Change settings of every running name server, all or none at each.

        Raises UsageError for no change, else as `config` does.
        """
        if not changes:
            raise UsageError("no setting is given")
        body = write_properties(changes)
        await self._tell(command(RequestCode.UPDATE_NAMESRV_CONFIG, None, body))

    async def get(self, namespace: str, key: str) -> str | None:
        """Return one value of the key-value table. Raises Refused with code 22 for none."""
        header = GetKVConfigRequest(namespace=namespace, key=key)
        answer = await self._calls.ask_name_server(command(RequestCode.GET_KV_CONFIG, header))
        return read_header(GetKVConfigResponse, answer).value

    async def items(self, namespace: str) -> dict[str, str]:
        """Return all of a namespace. Raises Refused with code 22 for an unknown one."""
        header = GetKVListByNamespaceRequest(namespace=namespace)
        request = command(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        return read(stats.decode_kv_table, await self._calls.ask_name_server(request))

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value at every name server. Raises Refused, Unreachable, OutcomeUnknown."""
        header = PutKVConfigRequest(namespace=namespace, key=key, value=value)
        await self._tell(command(RequestCode.PUT_KV_CONFIG, header))

    async def delete(self, namespace: str, key: str) -> None:
        """Delete one value at every name server. Raises Refused, Unreachable, OutcomeUnknown."""
        header = DeleteKVConfigRequest(namespace=namespace, key=key)
        await self._tell(command(RequestCode.DELETE_KV_CONFIG, header))

    async def _tell(self, request: Command) -> None:
        await tell_name_servers(self._calls, request)

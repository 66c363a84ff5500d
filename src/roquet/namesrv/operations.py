"""What operators change: key-value configuration, permissions, topics of the tables."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, UsageError
from roquet.namesrv.checks import check_name, check_queues, check_text, invalid
from roquet.protocol.bodies.routes import decode_route
from roquet.protocol.bodies.stats import encode_kv_table
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import reply_to
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers import namesrv as headers
from roquet.remoting.router import Route
from roquet.service.background import give_way
from roquet.service.slices import in_turns, read_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.namesrv.kv import KeyValues
    from roquet.namesrv.steps import Work
    from roquet.namesrv.table import RouteTable
    from roquet.protocol.command import Command
    from roquet.remoting.router import Request

log = logging.getLogger(__name__)

LANE = "default"
VALUE_MAX = 1024 * 1024
"""Characters of one value of the key-value configuration."""


class KeyValueRequests:
    """Handlers of the key-value configuration. Writing happens beside the loop, in order."""

    def __init__(self, values: KeyValues) -> None:
        """Serve `values`."""
        self._values = values
        self._writing = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Return the rows of the request table."""
        return [
            Route((RequestCode.PUT_KV_CONFIG,), self.put, LANE),
            Route((RequestCode.GET_KV_CONFIG,), self.get, LANE),
            Route((RequestCode.DELETE_KV_CONFIG,), self.delete, LANE),
            Route((RequestCode.GET_KVLIST_BY_NAMESPACE,), self.namespace, LANE),
        ]

    async def start(self) -> None:
        """Read the file. Raises UsageError when it is there and cannot be used."""
        await asyncio.to_thread(self._values.load)

    async def stop(self) -> None:
        """Let a write under way end."""
        async with self._writing:
            pass

    async def put(self, request: Request) -> Command:
        """Set a value (100); answered when it is on disk."""
        header = headers.PutKVConfigRequest.decode(request.command.ext)
        check_name("namespace", header.namespace)
        check_name("key", header.key)
        check_text("value", header.value, VALUE_MAX)
        await self._write(lambda: self._values.put(header.namespace, header.key, header.value))
        return reply_to(request.command)

    def get(self, request: Request) -> Command:
        """Return a value (101)."""
        header = headers.GetKVConfigRequest.decode(request.command.ext)
        value = self._values.get(header.namespace, header.key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return reply_to(request.command, ext=headers.GetKVConfigResponse(value=value).encode())

    async def delete(self, request: Request) -> Command:
        """Remove a value (102); one that is not there is removed as well."""
        header = headers.DeleteKVConfigRequest.decode(request.command.ext)
        await self._write(lambda: self._values.delete(header.namespace, header.key))
        return reply_to(request.command)

    def namespace(self, request: Request) -> Command:
        """Return all values of a namespace (219)."""
        header = headers.GetKVListByNamespaceRequest.decode(request.command.ext)
        values = self._values.namespace(header.namespace)
        if values is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return reply_to(request.command, body=encode_kv_table(values))

    async def report(self) -> None:
        """Log every value, for those who look for it there (Java: each 10 minutes)."""
        for line in self._values.describe():
            log.info(line)

    async def _write(self, change: Callable[[], None]) -> None:
        async with self._writing:
            try:
                await asyncio.to_thread(change)
            except (OSError, UsageError) as error:
                log.warning("the key-value configuration cannot be written: %s", error)
                raise Refused(ResponseCode.SYSTEM_ERROR, f"cannot write: {error}") from error


class TopicRequests:
    """Handlers that change topics in this name server only."""

    def __init__(self, table: RouteTable) -> None:
        """Change `table`."""
        self._table = table

    def routes(self) -> list[Route]:
        """Return the rows of the request table."""
        return [
            Route((RequestCode.WIPE_WRITE_PERM_OF_BROKER,), self.wipe_write_perm, LANE),
            Route((RequestCode.ADD_WRITE_PERM_OF_BROKER,), self.add_write_perm, LANE),
            Route((RequestCode.DELETE_TOPIC_IN_NAMESRV,), self.delete, LANE),
            Route((RequestCode.REGISTER_TOPIC_IN_NAMESRV,), self.register, LANE),
        ]

    async def wipe_write_perm(self, request: Request) -> Command:
        """Take write permission from a broker's topics (205), before it is stopped, say."""
        header = headers.WipeWritePermOfBrokerRequest.decode(request.command.ext)
        touched = await self._changed(self._table.wipe_write_perm(header.broker_name))
        log.info("write permission of %s wiped: %d topics", header.broker_name, touched)
        response = headers.WipeWritePermOfBrokerResponse(wipe_topic_count=touched)
        return reply_to(request.command, ext=response.encode())

    async def add_write_perm(self, request: Request) -> Command:
        """Give a broker's topics read and write permission (327)."""
        header = headers.AddWritePermOfBrokerRequest.decode(request.command.ext)
        touched = await self._changed(self._table.add_write_perm(header.broker_name))
        log.info("write permission of %s added: %d topics", header.broker_name, touched)
        response = headers.AddWritePermOfBrokerResponse(add_topic_count=touched)
        return reply_to(request.command, ext=response.encode())

    async def _changed(self, work: Work[int]) -> int:
        # A registration that is being taken over would undo a part of it.
        while self._table.advance():
            await give_way()
        return await in_turns(work)

    def delete(self, request: Request) -> Command:
        """Forget a topic, everywhere or in one cluster (216)."""
        header = headers.DeleteTopicFromNamesrvRequest.decode(request.command.ext)
        self._table.delete_topic(header.topic, header.cluster_name or None)
        return reply_to(request.command)

    async def register(self, request: Request) -> Command:
        """Note queues of a topic by hand (217)."""
        command = request.command
        header = headers.RegisterTopicRequest.decode(command.ext)
        check_name("topic", header.topic)
        try:
            route = await read_body(decode_route, command.body) if command.body else None
        except JsonError as error:
            raise invalid(str(error)) from error
        queues = () if route is None else route.queues
        for one in queues:
            check_queues(header.topic, one.read_queues, one.write_queues, one.perm)
        self._table.register_topic(header.topic, queues)
        return reply_to(command)

"""Admin requests of the command line: one blocking connection a peer, opened when needed."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Self

from roquet.acl.credentials import from_environment
from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, Unreachable, UsageError
from roquet.protocol.bodies.routes import ClusterInfo, decode_route
from roquet.protocol.bodies.stats import TopicStats
from roquet.protocol.bodies.topics import decode_topic_list
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.admin import CreateTopicRequest
from roquet.protocol.hosts import split_addresses
from roquet.protocol.names import AUTO_CREATE_TOPIC
from roquet.remoting.blocking import BlockingConnection
from roquet.remoting.tls import client_tls, environment_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.model.route import TopicRoute

TIMEOUT_S = 5.0


class Admin:
    """Asks name servers and brokers. Use in a `with`."""

    def __init__(self, namesrv: str) -> None:
        """Ask the first of these name servers that answers. Raises UsageError."""
        try:
            self._namesrv = split_addresses(namesrv)
        except ValueError as error:
            raise UsageError(f"--namesrv: {error}") from error
        if not self._namesrv:
            raise UsageError("--namesrv is empty: it should look like 127.0.0.1:9876")
        self._connections: dict[str, BlockingConnection] = {}
        self._tls = client_tls(environment_options(os.environ), SystemClock())
        credentials = from_environment(os.environ)
        self._sign = None if credentials is None else credentials.sign
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def clusters(self) -> ClusterInfo:
        """Return what the name server knows of brokers."""
        return ClusterInfo.decode(self._of_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO).body)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        answer = self._of_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return decode_topic_list(answer.body)[0]

    def system_topics(self) -> set[str]:
        """Return names that are topics of the system: clusters, brokers and a broker's own."""
        answer = self._of_namesrv(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        names, address = decode_topic_list(answer.body)
        found = set(names)
        if address is not None:
            own = self._ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            found.update(decode_topic_list(own.body)[0])
        return found

    def route(self, topic: str) -> TopicRoute:
        """Return where a topic is. Raises Refused with what helps when it is nowhere."""
        try:
            answer = self._of_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        except Refused as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            hint = f"there is no topic {topic}; try: roquet topic create {topic}"
            raise Refused(refusal.code, hint) from refusal
        return decode_route(answer.body)

    def stats(self, broker: str, topic: str) -> TopicStats:
        """Return the offsets of a topic's queues on one broker."""
        answer = self._ask(broker, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        return TopicStats.decode(answer.body)

    def create_topic(self, broker: str, topic: str, queues: int) -> None:
        """Create a topic on one broker, or change it there."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        self._ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())

    def _of_namesrv(self, code: RequestCode, ext: Mapping[str, str] | None = None) -> Command:
        last: Unreachable | None = None
        for address in self._namesrv:
            try:
                return self._ask(address, code, ext)
            except Unreachable as error:
                last = error
        raise Unreachable(f"no name server answers ({last}); is one running? try: roquet dev")

    def _ask(
        self, address: str, code: RequestCode, ext: Mapping[str, str] | None = None
    ) -> Command:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._open.enter_context(
                BlockingConnection(address, tls=self._tls, sign=self._sign)
            )
            self._connections[address] = connection
        answer = connection.call(Command(code=code, ext=dict(ext or {})), TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(answer.code, answer.remark or f"{address} refused request {code.name}")
        return answer

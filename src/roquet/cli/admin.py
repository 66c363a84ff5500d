"""Admin requests of the command line: one blocking connection a peer, opened when needed."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Self

from roquet.acl.credentials import from_environment
from roquet.base.clock import SystemClock
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable, UsageError
from roquet.protocol.bodies.routes import ClusterInfo, decode_route
from roquet.protocol.bodies.stats import TopicStats, decode_kv_table
from roquet.protocol.bodies.topics import decode_topic, decode_topic_list
from roquet.protocol.codes import RequestCode, ResponseCode, request_name
from roquet.protocol.command import Command
from roquet.protocol.headers.admin import CreateTopicRequest
from roquet.protocol.hosts import split_addresses
from roquet.protocol.names import AUTO_CREATE_TOPIC
from roquet.remoting.blocking import BlockingConnection
from roquet.remoting.refusals import refused
from roquet.remoting.tls import TlsMismatch, client_tls, environment_options, why_not_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.model.route import TopicRoute
    from roquet.model.topic import TopicConfig
    from roquet.remoting.tls import TlsOptions

TIMEOUT_S = 3.0


class Admin:
    """Asks name servers and brokers. Use in a `with`."""

    def __init__(self, namesrv: str, tls: TlsOptions | None = None) -> None:
        """Ask the first of these name servers that answers. Raises UsageError.

        Without `tls` the environment says whether to use it.
        """
        try:
            self._namesrv = split_addresses(namesrv)
        except ValueError as error:
            raise UsageError(f"--namesrv: {error}") from error
        if not self._namesrv:
            raise UsageError("--namesrv is empty: it should look like 127.0.0.1:9876")
        self._connections: dict[str, BlockingConnection] = {}
        self._tls = client_tls(tls or environment_options(os.environ), SystemClock())
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
            raise self.no_topic(topic) from refusal
        return decode_route(answer.body)

    def stats(self, broker: str, topic: str) -> TopicStats:
        """Return the offsets of a topic's queues on one broker."""
        answer = self._ask(broker, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        return TopicStats.decode(answer.body)

    def topic(self, broker: str, topic: str) -> TopicConfig | None:
        """Return a topic as one broker has it, None when it has none."""
        try:
            answer = self._ask(broker, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        except Refused as refusal:
            if refusal.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return decode_topic(answer.body)

    def runtime(self, broker: str) -> dict[str, str]:
        """Return what one broker says about itself, by key."""
        return decode_kv_table(self._ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO).body)

    def put_topic(self, broker: str, config: TopicConfig) -> None:
        """Create a topic on one broker, or change it there."""
        header = CreateTopicRequest(
            topic=config.name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queues,
            write_queue_nums=config.write_queues,
            perm=int(config.perm),
            topic_filter_type=str(config.filter_type),
            topic_sys_flag=config.sys_flag,
            order=config.order,
        )
        self._ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())

    def no_topic(self, topic: str) -> Refused:
        """Return the error for a topic that is nowhere, with what helps."""
        hint = f"there is no topic {topic}; try: roquet topic create {topic}"
        return Refused(ResponseCode.TOPIC_NOT_EXIST, hint)

    def _of_namesrv(self, code: RequestCode, ext: Mapping[str, str] | None = None) -> Command:
        last: RoquetError | None = None
        for address in self._namesrv:
            try:
                return self._ask(address, code, ext)
            except TlsMismatch:
                raise
            except (Unreachable, OutcomeUnknown) as error:
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
        try:
            answer = connection.call(Command(code=code, ext=dict(ext or {})), TIMEOUT_S)
        except OutcomeUnknown as error:
            mismatch = why_not_plain(address) if self._tls is None else None
            if mismatch is None:
                raise
            raise mismatch from error
        if answer.code != ResponseCode.SUCCESS:
            fallback = f"{address} refuses {request_name(code)}"
            raise refused(answer.code, answer.remark or fallback)
        return answer

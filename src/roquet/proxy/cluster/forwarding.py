"""Plain sends and acknowledgements that go to brokers without the front.

The core makes frames of such calls and answers them once a broker has said yes. Everything else is
here or with the front: connections, refusals, brokers that do not answer. A call that no broker has
looked at goes to the front as if it had come just now.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from roquet._native import GrpcForwarder, GrpcSends
from roquet.base.errors import OutcomeUnknown
from roquet.base.limits import FRAME_SIZE_MAX
from roquet.broker.api.refusal import Refusal
from roquet.client.fronts import CALL_S
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, request_name
from roquet.protocol.command import VERSION
from roquet.protocol.names import AUTO_CREATE_TOPIC
from roquet.proxy import messages as pb
from roquet.proxy.cluster.brokers import SEND_S, STORED, TEMPLATE_QUEUES, result_of
from roquet.proxy.lines import Lines
from roquet.proxy.rules.codes import Rejected
from roquet.proxy.rules.methods import Family
from roquet.proxy.rules.plain import consumers
from roquet.proxy.services.consume import acknowledged
from roquet.proxy.services.produce import sent
from roquet.proxy.services.routes import writable_of
from roquet.remoting.codec import decode
from roquet.remoting.connections.ingest import FeedResult, HandedOn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roquet._native import GrpcServer
    from roquet.base.clock import Clock
    from roquet.client.fronts import FrontClient
    from roquet.proxy.brokers.api import Topic
    from roquet.proxy.cluster.calls import Calls
    from roquet.proxy.front import Front
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.transport import GrpcPort
    from roquet.remoting.connections.connection import Connection

    Told = tuple[int, str, bool, int, bytes, list[tuple[int, bytes]]]
    """Number of a call, its broker, whether it sends, when it began, the request, and answers that
    are no plain success by the entry of the request; an empty one has not come."""

log = logging.getLogger(__name__)

LATE_S = 0.25
"""How often calls are looked for that wait for too long."""
_SEND, _ACK = "SendMessage", "AckMessage"


class ForwardedCalls:
    """Takes plain calls of one port to brokers. A service; `use` it before its port starts."""

    def __init__(self, client: FrontClient, calls: Calls, rules: ProxyLimits, clock: Clock) -> None:
        """Connect by this client, whose requests nobody signs."""
        self._client = client
        self._calls = calls
        self._clock = clock
        self._core = GrpcForwarder(
            GrpcSends(
                body=rules.message_max,
                properties=rules.properties_max,
                property_bytes=rules.property_bytes_max,
                group=rules.group_bytes_max,
                checks_type=rules.check_type,
                reserved=set(props.RESERVED),
            ),
            consumers(),
            template=AUTO_CREATE_TOPIC,
            template_queues=TEMPLATE_QUEUES,
            version=VERSION,
            frame_max=FRAME_SIZE_MAX,
            send_ms=int(SEND_S * 1000),
            ack_ms=int(CALL_S * 1000),
            calls_max=rules.in_flight_max,
        )
        self._front: Front | None = None
        self._port: GrpcPort | None = None
        self._server: GrpcServer | None = None
        self._lines: dict[int, _Line] = {}
        self._connecting = Lines(self._dial, self._connected, clock)

    def use(self, front: Front, port: GrpcPort) -> None:
        """Leave to a front what is not plain; `port` has its calls."""
        self._front, self._port = front, port
        front.elsewhere = self._under_way

    async def start(self) -> None:
        """Nothing to do: the first call connects."""

    async def stop(self) -> None:
        """End what is being connected; connections end with the client."""
        await self._connecting.stop()

    def learn(self, name: str, topic: Topic | None, until_ms: int) -> None:
        """Hear of a topic that counts until a steady time, or of none."""
        is_plain = names.check_topic(name) is None and not (
            names.is_system_topic(name) or names.is_retry(name) or names.is_dlq(name)
        )
        places: list[tuple[str, int]] = []
        if topic is not None and is_plain:
            try:
                places = [(place.broker, place.write_queues) for place in writable_of(topic)]
            except Rejected:
                places = []  # the front says so
        if topic is None or not places:
            self._core.forget(name)
            return
        takes = topic.kind in {"NORMAL", "MIXED"}, topic.kind in {"FIFO", "MIXED"}
        self._core.put(name, takes, places, until_ms)

    # --- calls -----------------------------------------------------------------------------------

    def take(self, server: GrpcServer) -> list[tuple[Any, ...]]:
        """Take the news of a server, but for calls that go to a broker."""
        assert self._front is not None, "there is a front before there are calls"
        self._server = server
        now = self._clock.steady_ms(), self._clock.now_ms()
        news, out, wanted = self._core.take(server, now, self._front.settles)
        for key, frames, calls in out:
            line = self._lines.get(key)
            if line is not None and self._is_good(line):
                line.connection.write(frames)
            else:
                news += self._core.take_back(calls)
        for broker in wanted:
            address = self._client.master(broker)
            if address is not None:
                self._connecting.want(broker, address)
        return news

    def feed(self, key: int, data: memoryview) -> FeedResult | bytes:
        """Take what a broker has written."""
        assert self._server is not None, "nobody was asked before there was a call"
        line = self._lines[key]
        found = self._core.feed(self._server, key, data)
        if found is None:
            self._calls.answered(line.broker)
            return b""
        has_answered, rest, odd, again, broken = found
        if has_answered:
            self._calls.answered(line.broker)
        self._tell(odd)
        if again:
            # The broker is stopping: the front asks it, or another in its place, once more.
            self._retire(line)
            assert self._port is not None, "there is a port before there are calls"
            self._port.act(again)
        return FeedResult(b"", decode(rest)[0], broken=broken)

    async def end_late(self) -> None:
        """Answer calls that have waited for too long: the action of a timer."""
        late = self._core.late(self._clock.steady_ms())
        for call in late:
            _, broker, is_send, began_ms, _, _ = call
            code = RequestCode.SEND_MESSAGE_V2 if is_send else RequestCode.ACK_MESSAGE
            patience_s = SEND_S if is_send else CALL_S
            where = self._client.master(broker) or broker
            text = f"{where} did not answer {request_name(code)} within {patience_s:g} s"
            unknown = OutcomeUnknown(text)
            fault = self._calls.unanswered(broker, began_ms, patience_s, unknown)
            self._tell([call], fault)

    def closed(self, key: int) -> None:
        """Note that a connection has ended."""
        line = self._lines.pop(key, None)
        for call in self._core.close(key):
            _, broker, is_send, began_ms, _, _ = call
            where = broker if line is None else line.connection.address
            unknown = OutcomeUnknown(f"{where} closed the connection")
            patience_s = SEND_S if is_send else CALL_S
            self._tell([call], self._calls.unanswered(broker, began_ms, patience_s, unknown))

    def held(self, key: int) -> int:
        """Return the bytes of a connection's incomplete frame."""
        return self._core.held(key)

    def _under_way(self, family: Family) -> int:
        sends, acks = self._core.counts()
        return {Family.PRODUCER: sends, Family.CONSUMER: acks}.get(family, 0)

    def _tell(self, calls: Iterable[Told], unanswered: Rejected | None = None) -> None:
        """Answer calls that a broker has refused in part or in whole, or has not answered."""
        server, front = self._server, self._front
        assert server is not None, "nobody was asked before there was a call"
        assert front is not None, "there is a front before there are calls"
        for call, broker, is_send, _, request, answers in calls:
            faults: dict[int, Exception] = {}
            try:
                if is_send:
                    found = self._sent(broker, request, answers, unanswered)
                else:
                    for entry, frame in answers:
                        fault = self._fault(broker, frame, unanswered)
                        if fault is not None:
                            faults[entry] = fault
                    entries = pb.AckMessageRequest.FromString(request).entries
                    found = acknowledged(entries, faults)
                message = found.SerializeToString()
            except Exception as error:  # noqa: BLE001  (the client is told)
                message = front.failure(_SEND if is_send else _ACK, error)
            server.send(call, message)
            server.finish(call, 0, "")

    def _sent(
        self,
        broker: str,
        request: bytes,
        answers: Sequence[tuple[int, bytes]],
        unanswered: Rejected | None,
    ) -> Any:
        """Return the answer to a send. Raises Refusal and Rejected."""
        frame = answers[0][1] if answers else b""
        if not frame and unanswered is not None:
            raise unanswered
        (answer,), _ = decode(frame)
        self._calls.judge(broker, answer, STORED)
        messages = pb.SendMessageRequest.FromString(request).messages
        return sent(messages, result_of(broker, answer), broker)

    def _fault(self, broker: str, frame: bytes, unanswered: Rejected | None) -> Exception | None:
        """Return what is wrong with an entry of an acknowledgement."""
        if not frame:
            return unanswered
        (answer,), _ = decode(frame)
        try:
            self._calls.judge(broker, answer)
        except Refusal as refusal:
            return refusal
        return None

    # --- connections -----------------------------------------------------------------------------

    def _is_good(self, line: _Line) -> bool:
        """Tell whether a broker may be asked by a connection; one to elsewhere is retired."""
        connection = line.connection
        if self._client.master(line.broker) != connection.address:
            self._retire(line)
            return False
        is_usable = connection.is_open and not connection.is_stuck
        return is_usable and not self._calls.is_silent(line.broker)

    def _retire(self, line: _Line) -> None:
        self._core.retire(line.broker)

    async def _dial(self, address: str) -> Connection:
        return await self._client.dial(address, HandedOn(self.feed, self.held, self.closed))

    def _connected(self, broker: str, connection: Connection) -> None:
        self._lines[connection.key] = _Line(broker, connection)
        self._core.open(broker, connection.key)


class _Line:
    """A connection to a broker."""

    def __init__(self, broker: str, connection: Connection) -> None:
        self.broker = broker
        self.connection = connection

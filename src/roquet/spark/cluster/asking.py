"""The functions of `roquet.admin` for a driver without an event loop, many of them at once.

A function of administration waits for answers and for nothing else. So it can be run by whoever
sends its requests: it is told each answer, and says what it asks next.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from roquet.admin import Admin
from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, Unreachable
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable, Sequence

    from roquet.base.clock import Clock
    from roquet.model.route import TopicRoute
    from roquet.protocol.command import Command

T = TypeVar("T")

TOGETHER_MAX: Final = 10_000
"""Functions that are under way at the same time: a few kilobytes each."""


class Connections(Protocol):
    """What sends requests and waits for their answers."""

    def call(self, addresses: Iterable[str], command: Command) -> Command:
        """Ask the addresses in turn until one answers. Raises Unreachable."""
        ...

    def call_all(self, wanted: Sequence[tuple[Sequence[str], Command]]) -> list[Command]:
        """Ask many at once, each at one of its addresses. Raises Unreachable."""
        ...


class Question:
    """A request that a function waits for, and who may answer it: the first that does."""

    def __init__(self, addresses: tuple[str, ...], command: Command) -> None:
        """Ask nobody yet."""
        self.addresses = addresses
        self.command = command

    def __await__(self) -> Generator[Question, Command, Command]:
        """Give the question to whoever runs the function, and take the answer."""
        return (yield self)


class Questions:
    """`roquet.admin.calls.Calls` by questions. What is asked of a broker, its slaves may answer."""

    left_out = None
    """A broker that does not answer raises."""

    def __init__(self, name_servers: tuple[str, ...], broker: tuple[str, ...] = ()) -> None:
        """Take the addresses of one broker, the one to ask first before the others."""
        self._name_servers = name_servers
        self._broker = broker
        self._clock = SystemClock()

    @property
    def clock(self) -> Clock:
        """The time. Nobody can sleep in a function that is run here."""
        return self._clock

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers."""
        return self._name_servers

    async def ask(self, address: str, command: Command) -> Command:
        """Ask a broker, or one that stands in for it. Raises Refused."""
        known = self._broker if address in self._broker[:1] else (address,)
        return _succeeded(await Question(known, command))

    async def ask_name_server(self, command: Command) -> Command:
        """Ask name servers until one answers. Raises Refused."""
        return _succeeded(await Question(self._name_servers, command))

    async def route(self, topic: str) -> TopicRoute:
        """Ask for a topic's route. Raises Refused with code 17, Unreachable."""
        found = await Admin(self).topics.presence(topic)
        if found.route is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, found.remark)
        return found.route

    def forget_topic(self, topic: str) -> None:
        """Nothing is kept."""


def first_of(addresses: Sequence[str]) -> str:
    """Return the address to ask first. Raises Unreachable when there is none."""
    if not addresses:
        raise Unreachable("there is no address to ask")
    return addresses[0]


def run(connections: Connections, work: Coroutine[Any, Any, T]) -> T:
    """Run a function of administration. Raises what it raises, and Unreachable."""
    try:
        question: Question = work.send(None)
        while True:
            question = work.send(connections.call(question.addresses, question.command))
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        work.close()


def run_all(connections: Connections, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run functions side by side, each to its end; return what they return, in their order.

    Their requests go to all brokers at once. Raises what the first of them raises, and Unreachable.
    """
    rest = iter(work)
    found: list[T] = []
    while part := list(itertools.islice(rest, TOGETHER_MAX)):
        found += _side_by_side(connections, part)
    return found


def _side_by_side(connections: Connections, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    found: dict[int, T] = {}
    told: dict[int, Command | None] = dict.fromkeys(range(len(work)))
    try:
        while told:
            asked: dict[int, Question] = {}
            for at, answer in told.items():
                try:
                    asked[at] = work[at].send(answer)
                except StopIteration as end:
                    found[at] = end.value
            told = {}
            if asked:
                wanted = [(it.addresses, it.command) for it in asked.values()]
                told.update(zip(asked, connections.call_all(wanted), strict=True))
    finally:
        for it in work:
            it.close()
    return [found[at] for at in range(len(work))]


def _succeeded(answer: Command) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(answer.code, answer.remark or "", answer.ext)
    return answer

"""What administration needs of a client, and what its families share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from roquet.base.errors import NotFound, OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.fastjson import JsonError
from roquet.protocol.header import Header, HeaderError
from roquet.protocol.headers.admin import GetTopicConfigRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from roquet.base.clock import Clock
    from roquet.base.errors import RoquetError
    from roquet.model.route import TopicRoute

NO_MASTER = "has no master now"
_SEVERAL = 2
PATIENCE_S: dict[int, float] = {
    RequestCode.ADD_BROKER: 20.0,
    RequestCode.REMOVE_BROKER: 20.0,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: 30.0,
}
"""How long an answer is waited for that takes a server longer than others; as RocketMQ's tool."""

T = TypeVar("T")
H = TypeVar("H", bound=Header)


class Calls(Protocol):
    """Requests to a cluster. A client's session gives them."""

    @property
    def clock(self) -> Clock:
        """Time, for what is waited for."""
        ...

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers."""
        ...

    @property
    def left_out(self) -> Callable[[str, RoquetError], None] | None:
        """Called with each broker that does not answer to a look at several; None: that raises."""
        ...

    async def ask(self, address: str, command: Command) -> Command:
        """Ask one peer. Raises Refused, Unreachable, OutcomeUnknown."""
        ...

    async def ask_name_server(self, command: Command) -> Command:
        """Ask name servers until one answers. Raises Refused, Unreachable."""
        ...

    async def route(self, topic: str) -> TopicRoute:
        """Ask for a topic's route now. Raises Refused with code 17, Unreachable."""
        ...

    def forget_topic(self, topic: str) -> None:
        """Keep no route of this topic."""
        ...


class Unreadable(Unreachable):
    """A peer answered, but not with what was asked for."""


def command(code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
    """Make a request."""
    return Command(code=int(code), ext=None if header is None else header.encode(), body=body)


def read(decode: Callable[[bytes], T], answer: Command) -> T:
    """Read an answer's body. Raises Unreadable when it is not what was asked for."""
    try:
        return decode(answer.body)
    except (JsonError, UsageError) as error:
        raise Unreadable(f"the answer cannot be read: {error}") from error


def read_header(kind: type[H], answer: Command) -> H:
    """Read an answer's fields. Raises Unreadable when they are not what was asked for."""
    try:
        return kind.decode(answer.ext)
    except HeaderError as error:
        raise Unreadable(f"the answer cannot be read: {error}") from error


def demand(wrong: str | None) -> None:
    """Raise UsageError with this text, if there is one."""
    if wrong is not None:
        raise UsageError(wrong)


class Brokers:
    """Which brokers a request goes to."""

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls

    async def known(self) -> ClusterInfo:
        """Return all brokers. Raises Unreachable."""
        request = command(RequestCode.GET_BROKER_CLUSTER_INFO)
        return read(ClusterInfo.decode, await self._calls.ask_name_server(request))

    async def masters(
        self, brokers: Iterable[str] | None = None, *, cluster: str | None = None
    ) -> dict[str, str]:
        """Return broker name -> address of all masters, of a cluster's, or of the named ones.

        Brokers that have no master now are left out, and `Calls.left_out` hears of them. Raises
        NotFound for a name that is none and when there is no master at all, Unreachable.
        """
        info = await self.known()
        if cluster is not None and cluster not in info.clusters:
            there = ", ".join(sorted(info.clusters)) or "none"
            raise NotFound(f"there is no cluster {cluster}; there are: {there}")
        found = {
            name: data.master
            for name, data in info.brokers.items()
            if data.master is not None and cluster in (None, data.cluster)
        }
        if brokers is not None:
            wanted = list(brokers)
            for name in wanted:
                if name not in found and name in info.brokers:
                    raise NotFound(f"the broker {name} {NO_MASTER}")
            missing = [name for name in wanted if name not in found]
            if missing:
                there = ", ".join(found) or "none"
                raise NotFound(f"no broker {', '.join(missing)}: there are {there}")
            found = {name: found[name] for name in wanted}
        if not found:
            where = ";".join(self._calls.name_servers)
            raise NotFound(f"no master broker is registered at {where}: is one running?")
        if brokers is None and self._calls.left_out is not None:
            for name, data in info.brokers.items():
                if data.master is None and cluster in (None, data.cluster):
                    self._calls.left_out(name, Unreachable(NO_MASTER))
        return found

    async def address(self, broker: str) -> str:
        """Return an address to ask: a broker's name stands for its master, an address for itself.

        Raises NotFound for a name that is none.
        """
        if ":" in broker:
            return broker
        return (await self.masters([broker]))[broker]

    async def of_topic(self, topic: str) -> dict[str, str]:
        """Return broker name -> address of the masters that have a topic. Raises Refused 17.

        Where it can be neither read nor written it was deleted (`Topics.delete_on`), and the name
        servers keep its last registration, or somebody took its permissions away: then it is still
        there with its messages. Such a master is asked which it is, unless it is the only one.
        """
        route = await self._calls.route(topic)
        masters = {it.broker_name: it.master for it in route.brokers if it.master is not None}
        served = {it.broker_name for it in route.queues if it.perm}
        if len(masters) < _SEVERAL:
            return masters
        return {
            name: at
            for name, at in masters.items()
            if name in served or await self._keeps(at, topic)
        } or masters

    async def _keeps(self, address: str, topic: str) -> bool:
        """Return whether a broker has a topic, as far as it says; one that is away may have it."""
        request = command(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(topic=topic))
        try:
            await self._calls.ask(address, request)
        except Refused as refusal:
            return refusal.code != ResponseCode.TOPIC_NOT_EXIST
        except (Unreachable, OutcomeUnknown):
            pass
        return True

    async def each(
        self,
        addresses: Mapping[str, str],
        request: Command,
        *,
        skip: Iterable[ResponseCode] = (),
        change: bool = False,
    ) -> AsyncIterator[tuple[str, Command]]:
        """Ask one after the other; give broker name and answer, leaving out refusals in `skip`.

        A look, other than a `change`, goes on without a broker that does not answer if somebody
        wants to hear of it (`Calls.left_out`) and another one does. Raises Refused, Unreachable,
        OutcomeUnknown.
        """
        passed = frozenset(skip)
        away: list[tuple[str, RoquetError]] = []
        answered = False
        for name, address in addresses.items():
            try:
                answer = await self._calls.ask(address, request)
            except Refused as refusal:
                answered = True
                if refusal.code not in passed:
                    raise
                continue
            except (Unreachable, OutcomeUnknown) as error:
                if change or self._calls.left_out is None:
                    raise
                away.append((name, error))
                continue
            answered = True
            yield name, answer
        if away and not answered:
            raise away[0][1]
        for name, missing in away:
            if self._calls.left_out is not None:
                self._calls.left_out(name, missing)


async def tell_name_servers(calls: Calls, request: Command) -> list[Command]:
    """Tell every name server; return the answers. Raises as `tell_each` does."""
    return await tell_each(calls, calls.name_servers, request, "name servers")


async def tell_each(
    calls: Calls, addresses: Iterable[str], request: Command, whom: str
) -> list[Command]:
    """Tell every one of several servers, also behind one that is away; return the answers.

    Raises the first error when all have been told, naming those that have not heard of it.
    """
    answers: list[Command] = []
    failed: dict[str, Refused | Unreachable | OutcomeUnknown] = {}
    for address in addresses:
        try:
            answers.append(await calls.ask(address, request))
        except (Refused, Unreachable, OutcomeUnknown) as error:
            failed[address] = error
    if not failed:
        return answers
    first = next(iter(failed.values()))
    if not answers:
        raise first
    away = ", ".join(failed)
    raise Unreachable(f"done at {len(answers)} {whom}, but not at {away}: {first}") from first

"""Many requests of a plan: to all brokers at once, a window each, and what becomes of failures."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import Unreachable
from roquet.base.limits import FRAME_SIZE_MAX
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import FLAG_RESPONSE, Command
from roquet.remoting.codec import decode, encode
from roquet.spark.cluster.connections import WINDOW, Connections
from roquet.spark.options import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Answers = Callable[[list[Command]], list[Command] | None]

CODE = RequestCode.GET_TOPIC_STATS_INFO


class Peer:
    """A server that is given what came together, and says what goes back; None: it hangs up."""

    def __init__(self, together: int, answer: Answers) -> None:
        self._together = together
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.most = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        # A connection wakes it up: closing alone does not.
        self._together = 0
        with contextlib.suppress(OSError):
            socket.create_connection(self._listening.getsockname(), 5).close()
        self._thread.join(60)
        self._listening.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while self._together:
            one, _ = self._listening.accept()
            with one, contextlib.suppress(ConnectionResetError):
                self._talk(one)

    def _talk(self, one: socket.socket) -> None:
        partial, held = bytearray(), list[Command]()
        while data := one.recv(65536):
            partial += data
            commands, used = decode(partial, FRAME_SIZE_MAX)
            del partial[:used]
            held += commands
            self.most = max(self.most, len(held))
            if len(held) >= self._together:
                answers = self._answer(held)
                if answers is None:
                    return
                for request, it in zip(held, answers, strict=True):
                    one.sendall(encode(it, opaque=request.opaque, flag=FLAG_RESPONSE))
                held = []


@contextlib.contextmanager
def peers(
    *given: tuple[int, Answers],
) -> Iterator[list[Peer]]:
    with contextlib.ExitStack() as stack:
        found = [Peer(*it) for it in given]
        for it in found:
            stack.callback(it.close)
        yield found


@pytest.fixture
def connections() -> Iterator[Connections]:
    found = Connections(Wire(name_servers=(), retries=1, retry_pause_s=0.0), lambda _: None)
    yield found
    found.close()


def echo(commands: list[Command]) -> list[Command]:
    """Answer each with its own body."""
    return [Command(ResponseCode.SUCCESS, body=it.body) for it in commands]


def numbered(count: int) -> list[Command]:
    return [Command(CODE, body=b"%d" % n) for n in range(count)]


def test_all_brokers_work_at_once_and_each_has_a_window(connections: Connections) -> None:
    both = threading.Barrier(2, timeout=60)

    def together(commands: list[Command]) -> list[Command]:
        # Neither answers before the other has been asked as well; and the last comes first.
        both.wait()
        commands.reverse()
        return echo(commands)

    with peers((WINDOW, together), (WINDOW, together)) as (one, other):
        addresses = [(it.address,) for it in (one, other)]
        asked = [(addresses[n % 2], it) for n, it in enumerate(numbered(4 * WINDOW))]
        found = connections.call_all(asked)
        connections.close()
    assert [int(it.body) for it in found] == list(range(4 * WINDOW))
    assert (one.most, other.most) == (WINDOW, WINDOW)


def test_what_hangs_up_or_is_busy_is_asked_again(connections: Connections) -> None:
    seen: list[int] = []

    def busy_at_first(commands: list[Command]) -> list[Command]:
        seen.append(len(commands))
        code = ResponseCode.SYSTEM_BUSY if len(seen) == 1 else ResponseCode.SUCCESS
        return [Command(code, body=it.body) for it in commands]

    with peers((1, lambda _: None), (1, busy_at_first)) as (gone, busy):
        both = [((gone.address, busy.address), it) for it in numbered(3)]
        asked = [*both, ((busy.address,), Command(CODE, body=b"3"))]
        found = connections.call_all(asked)
        with pytest.raises(Unreachable, match="did not answer"):
            connections.call_all([((gone.address,), Command(CODE))])
        with pytest.raises(Unreachable, match="no address"):
            connections.call_all([((), Command(CODE))])
        connections.close()
    assert [it.code for it in found] == [ResponseCode.SUCCESS] * 4
    assert [int(it.body) for it in found] == [0, 1, 2, 3]


def test_nothing_is_asked_for_nothing(connections: Connections) -> None:
    assert connections.call_all([]) == []

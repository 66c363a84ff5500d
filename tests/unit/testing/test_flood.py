"""The flood of the fuzzers counts what a server has read, and tells a server that hangs."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

from tools.fuzz import flood
from tools.fuzz.flood import Flood, Piece, Script

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest

PIECES = [Piece("first", b"a" * 10, 3, b"<1>"), Piece("second", b"b" * 10, 5, b"<2>")]
LAST = Piece("last", b"c" * 10, 7)


@contextlib.contextmanager
def server(answers: dict[bytes, bytes], last: bytes = b"") -> Generator[int]:
    """Answer each line of letters that is known; close a connection at the `last`."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = listener.accept()
                with link, contextlib.suppress(OSError):
                    answer(link)

    def answer(link: socket.socket) -> None:
        while data := link.recv(10, socket.MSG_WAITALL):
            if last and data.startswith(last):
                return
            # Marks may come in parts.
            for byte in answers.get(data[:1], b""):
                link.sendall(bytes([byte]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])


def test_flood_counts_frames_before_marks_that_came_back() -> None:
    with server({b"a": b"..<1>", b"b": b"<2>.."}) as port:
        one = Flood(port, lambda: Script(PIECES), 2)
        one.run(80, time.monotonic() + 20)
        one.finish()
    tally = one.tally
    assert tally.read >= 80
    assert tally.read % 8 == 0
    assert tally.kinds["second"] * 3 == tally.kinds["first"] * 5
    assert (tally.stuck, tally.closed_by_server) == (0, 0)


def test_flood_counts_nothing_behind_the_last_mark_of_a_closed_connection() -> None:
    with server({b"a": b"<1>"}, last=b"b") as port:
        one = Flood(port, lambda: Script([*PIECES, LAST]), 1)
        one.run(9, time.monotonic() + 20)
        one.finish()
    assert one.tally.read % 3 == 0
    assert one.tally.read < one.tally.sent
    assert set(one.tally.kinds) == {"first"}
    assert one.tally.ends["second"] == one.tally.closed_by_server > 0


def test_flood_tells_a_connection_that_is_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "STUCK_S", 0.2)
    with server({b"a": b"<1>"}) as port:
        one = Flood(port, lambda: Script(PIECES), 1)
        one.run(6, time.monotonic() + 20)
        one.finish(5.0)
    assert one.tally.stuck > 0

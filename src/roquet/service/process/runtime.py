"""How a process of ours runs: the loop, the signals, the limits of the system."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any

from roquet import _native
from roquet.base.clock import SystemClock, to_beat
from roquet.base.errors import RoquetError
from roquet.service.process.collector import OldGeneration

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from roquet.base.clock import Clock

log = logging.getLogger(__name__)

ARENAS = 2
"""Arenas of the C library's allocator: most memory is taken and freed by one thread, the loop's."""
SWITCH_INTERVAL_S = 0.001
"""How long a thread beside the loop may keep the interpreter (Python: 5 ms).

Tables are written and long bodies read in such threads. The loop lets the interpreter go with each
call to a socket and gets it back after this time, so it is what each of them costs meanwhile.
"""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class CorePanickedError(RoquetError):
    """A thread of the core has panicked; what the process was doing is not known any more."""


def run(
    serve: Callable[[asyncio.Event], Coroutine[Any, Any, int]], *, prefer_uvloop: bool = True
) -> int:
    """Run `serve(stop)` to its end and return the exit code it returns.

    The first SIGTERM or SIGINT sets `stop`: `serve` then leaves its `async with App(...)`, which
    stops the parts in order. A second one cancels `serve` wherever it is. A panic of the core
    is logged and sets `stop` as well. Raises CorePanickedError after it.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    share_arenas()
    raise_open_files()
    _show_crashes()
    with asyncio.Runner(loop_factory=_loop_factory() if prefer_uvloop else None) as runner:
        return runner.run(_guarded(serve))


_old_generation = OldGeneration()


def settle() -> None:
    """Call once everything is loaded: the collector then leaves what is there alone."""
    _old_generation.settle()


async def _collect(clock: Clock) -> None:
    """Look at old objects now and then, between two requests."""
    while True:
        await clock.sleep(to_beat(_old_generation.pause_s, clock.steady_ms()))
        _old_generation.tick()


def share_arenas() -> bool:
    """Keep memory that threads free where other threads can use it; tell whether that was set.

    By default glibc gives nearly every thread an arena of its own, and threads come and go with
    duties, links and files: what they freed stayed there unused.
    """
    return _native.share_arenas(ARENAS)


def raise_open_files() -> int:
    """Raise the soft limit of open files to the hard one; return what is allowed now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("open files stay limited to %d: %s", soft, error)
            return soft
    return hard


def _show_crashes() -> None:
    """Have the error stream show where every thread was when the process is killed by a fault."""
    # Without an error stream, or with one that is no file, there is nowhere to show it.
    with contextlib.suppress(RuntimeError, OSError, ValueError, AttributeError):
        faulthandler.enable(file=sys.stderr.fileno(), all_threads=True)


async def _guarded(serve: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None

    def signalled(number: signal.Signals) -> None:
        if stop.is_set():
            log.warning("%s again: stopping at once", number.name)
            task.cancel()
        else:
            log.info("%s: stopping", number.name)
            stop.set()

    def panicked() -> None:
        loop.remove_reader(panics)
        log.critical("the core has panicked, this process stops: %s", _native.first_panic())
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, signalled, number)
    panics = _native.watch_panics()
    loop.add_reader(panics, panicked)
    collecting = loop.create_task(_collect(SystemClock()), name="garbage collection")
    try:
        code = await serve(stop)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        code = 1
    finally:
        collecting.cancel()
        loop.remove_reader(panics)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    if (why := _native.first_panic()) is not None:
        raise CorePanickedError(why)
    return code


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  (not there on every platform)
    except ImportError:
        return None
    return uvloop.new_event_loop

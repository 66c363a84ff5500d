"""What the threads and tasks of this process do at the moment, for who asks a member for it.

Frames are named by file, line and function. No line of source and no value of a variable is in it,
since whoever may look at a group may ask for this.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIZE_MAX = 64 * 1024
"""Characters."""
_TASKS_MAX = 200
_DEEP_MAX = 60
_LEFT_OUT = "\n... the rest is left out"


def stacks() -> str:
    """Return a paragraph for each thread and for each task of the loop that runs here."""
    parts: list[str] = []
    size = 0
    for part in (*_threads(), *_tasks()):
        size += len(part) + 2
        if size > SIZE_MAX:
            parts.append(_LEFT_OUT.strip())
            break
        parts.append(part)
    return "\n\n".join(parts)


def _threads() -> Iterator[str]:
    names = {it.ident: it for it in threading.enumerate()}
    # The one way to another thread's frame.
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for ident, frame in sorted(frames.items()):
        thread = names.get(ident)
        name = "?" if thread is None else thread.name
        kind = " daemon" if thread is not None and thread.daemon else ""
        yield "\n".join((f'"{name}" thread={ident}{kind}', *_lines(_outward(frame))))


def _tasks() -> Iterator[str]:
    tasks = sorted(asyncio.all_tasks(), key=lambda it: it.get_name())
    for task in tasks[:_TASKS_MAX]:
        # The innermost frame is the last one that is returned.
        frames = reversed(task.get_stack(limit=_DEEP_MAX))
        yield "\n".join((f'"{task.get_name()}" task', *_lines(frames)))
    if len(tasks) > _TASKS_MAX:
        yield f"... {len(tasks) - _TASKS_MAX} more tasks are left out"


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_DEEP_MAX):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _lines(frames: Iterator[FrameType]) -> Iterator[str]:
    for it in frames:
        code = it.f_code
        yield f"    at {code.co_qualname}({code.co_filename}:{it.f_lineno})"

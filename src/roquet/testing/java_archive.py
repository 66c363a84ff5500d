"""The archive of the Java side's classes, which a Java broker leaves as it ends."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

from roquet.testing.java import BrokerPlan, JavaError, free_port, java_broker
from roquet.testing.java_classes import archive_path, dump_flags


def make_archive(jars: Path) -> Path:
    """Return the archive of classes, after a Java broker has left it when there is none (10 s)."""
    path = archive_path(jars)
    if path.exists():
        return path
    draft = path.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        timers = {"timerWheelEnable": "true"}
        port = free_port(random.Random())  # noqa: S311  (no secret)
        broker = java_broker(jars, home, BrokerPlan("b", port, "127.0.0.1:1", home / "s", timers))
        broker.command[1:1] = dump_flags(draft)
        broker.start()
        broker.stop()
        if not draft.exists():
            raise JavaError(f"no archive of classes:\n{broker.output.read_text(errors='replace')}")
    for old in path.parent.glob(f"{jars.name}-????????????.jsa"):
        old.unlink()
    return draft.rename(path)

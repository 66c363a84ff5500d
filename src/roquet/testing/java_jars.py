"""Brings the jars of RocketMQ, and makes the archive of their classes.

`python -m roquet.testing.java_jars` is part of what runs before the tests that need them.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

from roquet.testing.java import (
    OLD_VERSION,
    VERSION,
    BrokerPlan,
    JavaError,
    fetch_jars,
    free_port,
    java_broker,
)
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


def main() -> int:
    """Fetch the jars, make the archive of their classes and say where they are."""
    for version in (VERSION, OLD_VERSION):
        try:
            folder = fetch_jars(version)
        except JavaError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        if version == VERSION:
            try:
                make_archive(folder)
            except JavaError as error:
                sys.stderr.write(f"JVMs will start without an archive of classes: {error}\n")
        count = len(list(folder.glob("*.jar")))
        sys.stdout.write(f"RocketMQ {version}: {count} jars in {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a process costs: processor time and memory, as the kernel counts them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User plus system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def memory_mib(pid: int) -> dict[str, float]:
    """Resident memory of a process: whole, and without mapped file pages."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = {
        line.split(":")[0]: int(line.split()[1])
        for line in status.splitlines()
        if line.startswith(("VmRSS", "RssAnon", "RssShmem"))
    }
    return {"rss": kib["VmRSS"] / 1024, "private": (kib["RssAnon"] + kib["RssShmem"]) / 1024}


ADOPT = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


def adopt() -> None:
    """Become the parent of what is below this process when its own parent ends (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(ADOPT, 1, 0, 0, 0)


def tree_cpu_s(pid: int) -> float:
    """User plus system seconds of a process and all below it, those that have ended included.

    What a child has used is with its parent once the parent has waited for it: both are added, as
    no process is in both. Those whose parent ends first are lost but for `adopt`.
    """
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            used[int(entry.name)] = sum(map(int, fields[11:15]))
    found, todo = 0, [pid]
    while todo:
        one = todo.pop()
        found += used.get(one, 0)
        todo += parents.get(one, [])
    return found * TICK_S

"""What a process costs: processor time and memory, as the kernel counts them."""

from __future__ import annotations

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

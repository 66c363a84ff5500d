"""The plan that `fault_shim.c` follows inside another process."""

from __future__ import annotations

import errno
import mmap
import os
import struct
import subprocess
from pathlib import Path

_LAYOUT = struct.Struct("=qiiii16s64s")
_CLOCK = struct.Struct("=q")
_SWITCH = struct.Struct("=iiii16s64s")
_HITS_AT = 20


class Shim:
    """A compiled shim and its plan, for one process at a time."""

    def __init__(self, folder: Path) -> None:
        """Compile it with `cc` into `folder`."""
        library, plan = folder / "fault_shim.so", folder / "plan"
        source = Path(__file__).with_name("fault_shim.c")
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
        subprocess.run(["cc", *flags, "-o", str(library), str(source), "-ldl"], check=True)
        plan.write_bytes(bytes(_LAYOUT.size))
        with plan.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.env = {**os.environ, "LD_PRELOAD": str(library), "ROQUET_FAULTS": str(plan)}

    def fail(self, call: str, path: str, error: int = errno.EIO, *, skip: int = 0) -> None:
        """Let every call of this name on paths that contain `path` fail, but for the first ones."""
        self.heal()
        _SWITCH.pack_into(self._map, 8, 0, error, skip, 0, call.encode(), path.encode())
        struct.pack_into("=i", self._map, 8, 1)

    def heal(self) -> None:
        """Let every call go well."""
        struct.pack_into("=i", self._map, 8, 0)

    @property
    def hits(self) -> int:
        """How many calls have failed since `fail`."""
        (hits,) = struct.unpack_from("=i", self._map, _HITS_AT)
        return int(hits)

    def clock(self, offset_s: int) -> None:
        """Put the wall clock of the process this far from the true one."""
        _CLOCK.pack_into(self._map, 0, offset_s)

"""An ext4 file system in a file that lies in memory, whose power can be cut.

Everything is mounted in a mount namespace of the calling process (`enter_private_mounts`), so that
nothing is left behind, however the program ends.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN: the file system stops where it is, and every later call gets EIO."""
NO_LOG_FLUSH = 2
"""What the journal has not committed yet is lost, as with the power."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MEMORY = "700m"
INSIDE = "ROQUET_PRIVATE_MOUNTS"


class NoMountsError(Exception):
    """This machine or user may not mount; says what was tried."""


def enter_private_mounts(module: str, arguments: list[str]) -> None:
    """Run the module again in a mount namespace of its own, unless this is that run.

    Raises NoMountsError when the machine does not allow it.
    """
    if os.environ.get(INSIDE) == "1":
        return
    probe = ["unshare", "--mount", "--propagation", "private", "true"]
    run(probe)
    command = [*probe[:-1], sys.executable, "-m", module, *arguments]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


class DiskImage:
    """The image, its mount point `disk`, and room beside it in memory (`scratch`)."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        """Mount the memory. Raises NoMountsError."""
        self.disk = folder / "disk"
        self.scratch = folder / "memory"
        self._image = self.scratch / "disk.img"
        self._size = size_mib << 20
        self._mounted = False
        for point in (self.disk, self.scratch):
            point.mkdir()
        run(["mount", "-t", "tmpfs", "-o", f"size={MEMORY}", "tmpfs", str(self.scratch)])
        self._boot = self.scratch / "boot_id"
        self.boot()
        run(["mount", "--bind", str(self._boot), BOOT_ID])

    def __enter__(self) -> Self:
        """Give the image to a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmount everything."""
        self.unmount()
        run(["umount", BOOT_ID])
        run(["umount", str(self.scratch)])

    def boot(self) -> None:
        """Let the machine have been booted, for those who ask the kernel: power cuts do that."""
        self._boot.write_text(f"{uuid.uuid4()}\n")

    def make(self) -> None:
        """Make an empty file system and mount it."""
        self._image.unlink(missing_ok=True)
        with self._image.open("wb") as image:
            image.truncate(self._size)
        run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(self._image)])
        self.mount()

    def mount(self) -> None:
        """Mount what the image holds; the journal is replayed."""
        run(["mount", "-o", "loop", str(self._image), str(self.disk)])
        self._mounted = True

    def unmount(self) -> None:
        """Unmount the image, if it is mounted."""
        if self._mounted:
            run(["umount", str(self.disk)])
            self._mounted = False

    def cut(self) -> None:
        """Cut the power: nothing that is not on the disk now will ever be."""
        disk = os.open(self.disk, os.O_RDONLY)
        try:
            fcntl.ioctl(disk, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(disk)


def run(command: list[str]) -> None:
    """Run a command of the system. Raises NoMountsError with what it says when it fails."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NoMountsError(f"{command[0]} is not installed") from error
    if done.returncode:
        raise NoMountsError(f"{' '.join(command)}: {done.stderr.strip()}")

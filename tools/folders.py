"""How many files a folder of code may have: so many that a reader finds one by its name."""

from __future__ import annotations

import collections
import subprocess
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
CODE: Final = (
    "bench",
    "crates",
    "demo",
    "deploy",
    "examples",
    "requirements",
    "src",
    "stubs",
    "tools",
)
"""Where code is. Pages (`docs`) and tests stand side by side."""
FILES_MAX: Final = 14
DATA: Final = {
    "bench/results": "figures, a file for each run; nobody looks for one by its subject",
    "requirements": "pins, one or two files for each environment that is installed by their name",
}
"""Folders that may have more files, and why: they hold no code."""


def files_by_folder() -> collections.Counter[str]:
    """Return the number of files of each folder of code; what git ignores does not count."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *CODE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}
    return collections.Counter(str(PurePosixPath(name).parent) for name in names)


def crowded(folders: Mapping[str, int]) -> list[str]:
    """Return the folders with too many files, the fullest first; not those of data."""
    found = [name for name, count in folders.items() if count > FILES_MAX and name not in DATA]
    return sorted(found, key=lambda name: (-folders[name], name))

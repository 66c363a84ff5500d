"""Fetch the browser libraries of the console again: pinned packages of npm, checked by hash.

python -m tools.vendor_console [--check]

Needs npm. With --check it only compares the files that are there with their hashes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "roquet" / "console" / "static" / "vendor"
PACKAGES = {
    "htmx.org@2.0.11": {
        "package/dist/htmx.min.js": "htmx.min.js",
        "package/LICENSE": "htmx.LICENSE",
    },
    "uplot@1.6.32": {
        "package/dist/uPlot.iife.min.js": "uplot.min.js",
        "package/dist/uPlot.min.css": "uplot.min.css",
        "package/LICENSE": "uplot.LICENSE",
    },
}
"""Package and version -> path inside -> name here."""
INTEGRITY = {
    "htmx.org@2.0.11": (
        "Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA=="
    ),
    "uplot@1.6.32": (
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
    ),
}
"""SHA-512 of the archives, as npm states it."""
SHA256 = {
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "htmx.LICENSE": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def main() -> int:
    """Fetch or check; return 1 when a file is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        with tempfile.TemporaryDirectory() as folder:
            for package, files in PACKAGES.items():
                fetch(Path(folder), package, files)
    wrong = different()
    for name in wrong:
        print(f"{name} is not the file that is pinned")
    return 1 if wrong else 0


def fetch(folder: Path, package: str, files: dict[str, str]) -> None:
    """Have npm fetch one package; take the files out of it when its hash is right."""
    command = ["npm", "pack", "--silent", "--ignore-scripts", package]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    archive = folder / said.stdout.split()[-1]
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != INTEGRITY[package]:
        raise SystemExit(f"{package}: sha512-{found} is not what is pinned")
    TARGET.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as opened:
        for path, name in files.items():
            member = opened.extractfile(path)
            assert member is not None, f"{package} has no {path}"
            (TARGET / name).write_bytes(member.read())


def different() -> list[str]:
    """Return the names of files that are missing or differ from their hashes."""
    return [
        name
        for name, sha in SHA256.items()
        if not (TARGET / name).is_file()
        or hashlib.sha256((TARGET / name).read_bytes()).hexdigest() != sha
    ]


if __name__ == "__main__":
    sys.exit(main())

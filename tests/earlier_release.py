"""An earlier commit of this repository, built beside the present one, for tests of the way back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "build" / "earlier"
MODULE = "roquet_native.abi3.so"


def earlier_release(commit: str) -> dict[str, str]:
    """Return the environment in which `python -m roquet` is the release of `commit`.

    It is built once below `build/earlier`, with the dependencies of this environment. Raises
    AssertionError where the history is missing (`git fetch --unshallow`) or it cannot be built.
    """
    folder = BUILT / commit
    sources = folder / "src"
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    if not (sources / "roquet" / MODULE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False
        )
        why = f"commit {commit} is not in this clone: git fetch --unshallow"
        assert archive.returncode == 0, f"{why}\n{archive.stderr.decode()}"
        subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
        made = BUILT / "target"
        command = ["cargo", "build", "-q", "--locked", "--profile", "dev-fast", "-p"]
        subprocess.run(
            [*command, "roquet-native", "--target-dir", str(made)], cwd=folder, check=True
        )
        library = made / "dev-fast" / "libroquet_native.so"
        library.rename(sources / "roquet" / MODULE)
    _runs(environment, sources)
    return environment


def _runs(environment: dict[str, str], sources: Path) -> None:
    """Check that it is that release which would be started, its native module included."""
    ask = "import roquet, roquet.roquet_native as n; print(roquet.__file__); print(n.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", ask], env=environment, capture_output=True, check=True
    )
    files = [Path(line) for line in found.stdout.decode().split()]
    assert len(files) == 2
    assert all(file.is_relative_to(sources) for file in files), files

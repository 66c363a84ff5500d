"""The image's default command and health check, run as the container runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cli_harness import Running, environment, roquet
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from typing import Any

DOCKERFILE = Path(__file__).parents[3] / "deploy/docker/Dockerfile"


def instruction(name: str) -> Any:
    """Return the list of the last instruction of that name."""
    found = re.findall(rf"^\s*{name} (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    return json.loads(found[-1])


def test_default_command_serves_all_addresses_and_its_health_check_is_green(
    tmp_path: Path,
) -> None:
    words = instruction("CMD")
    health = str(free_port())
    words[words.index("--data") + 1] = str(tmp_path / "data")
    assert words[words.index("--health-port") + 1] == "5557"
    words[words.index("--health-port") + 1] = health
    running = Running(tmp_path, *words, "--port", "0", "--namesrv-port", "0")
    try:
        lines = running.lines_until("Ctrl-C")
        (address,) = [line.split()[2] for line in lines if line.startswith("  name server ")]
        # What Docker forwards arrives at another address than loopback: any of 127.0.0.0/8 here.
        outside = f"127.0.0.2:{address.rpartition(':')[2]}"
        sent = roquet(tmp_path, "pub", "t", "x", "-n", outside)
        assert (sent.returncode, sent.stderr) == (0, "")
        check = [sys.executable, *_health_check()[1:]]
        check = [word.replace(":5557/", f":{health}/") for word in check]
        done = subprocess.run(
            check, check=False, timeout=120, capture_output=True, env=environment(tmp_path)
        )
        assert (done.returncode, done.stderr) == (0, b"")
    finally:
        assert running.stop() == 0


def _health_check() -> Any:
    found = re.search(r"HEALTHCHECK[^\[]*CMD (\[.*\])", DOCKERFILE.read_text())
    assert found is not None
    return json.loads(found[1])

"""The JSON API of the console, called by schemathesis as its OpenAPI document says."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from console_harness import World, a_console
from roquet.base.clock import SystemClock
from roquet.console.roles import Role
from roquet.testing.java import cache_folder

REQUIREMENTS = Path(__file__).parents[2] / "requirements" / "api-fuzz.txt"
CHECKS = (
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "ignored_auth",
    "unsupported_method",
    "allow_header_conformance",
)
"""Others ask for what is not promised: that all which fits the schema is a topic that is there.

An error of the console itself is status 500, which the document does not name; 502 to 504 are the
cluster's, which drawn requests do get.
"""
SEED = 19
REJECTION = "negative_data_rejection"
PHASES = {
    "examples,coverage": (CHECKS, 100, 40),
    # A field that is empty in a query counts as not given, as forms of the pages send it.
    "fuzzing": (tuple(it for it in CHECKS if it != REJECTION), 25, 40),
    # Few calls give what others take.
    "stateful": (CHECKS, 10, 3),
}
"""Checks, drawn calls of each operation, and operations that are tested at least."""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def schemathesis() -> Path:
    """The tool, installed once in an environment of its own."""
    content = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"api-fuzz-{content}"
    if not folder.exists():
        # A virtual environment knows its own path, so it is made where it stays.
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(draft)], check=True)
        uv = str(Path(sys.executable).with_name("uv"))
        target = ["--python", str(draft / "bin" / "python")]
        pins = ["--require-hashes", "-r", str(REQUIREMENTS)]
        subprocess.run([uv, "pip", "install", "-q", *target, *pins], check=True, timeout=280)
        try:
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft)
    return folder / "bin" / "python"


@pytest.mark.parametrize("phases", PHASES)
def test_calls_as_the_document_says_and_calls_that_break_it_get_what_it_says(
    tmp_path: Path, schemathesis: Path, phases: str
) -> None:
    checks, drawn, least = PHASES[phases]

    async def story(world: World) -> tuple[int, str]:
        now_s = SystemClock().steady_ms() / 1000
        key = world.console.sessions.begin("schemathesis", Role.ADMINISTRATOR, now_s)
        command = [
            *(str(schemathesis), "-m", "schemathesis.cli", "run"),
            f"http://127.0.0.1:{world.console.server.port}/api/openapi.json",
            *("-H", f"Authorization: Bearer {key}", "--phases", phases),
            *("--seed", str(SEED), "-c", ",".join(checks)),
            *("--max-examples", str(drawn)),
            *("--continue-on-failure", "--no-color"),
        ]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    async def whole() -> tuple[int, str]:
        async with a_console(tmp_path / "console") as world:
            return await story(world)

    code, said = asyncio.run(whole())
    assert code == 0, said[-8000:]
    (tested,) = re.findall(r"Tested: (\d+)", said)
    assert int(tested) >= least, said[-2000:]

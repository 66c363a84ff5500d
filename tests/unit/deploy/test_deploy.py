"""What is in `deploy/` fits the program: commands exist, the image is built well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roquet.cli.app import parser

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_the_commands_of_a_unit_exist(unit: Path) -> None:
    pattern = r"^Exec\w+=-?/opt/roquet/bin/roquet (.*)$"
    commands = re.findall(pattern, unit.read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        parser().parse_args(command.replace("%i", "a").split())
    assert re.search(r"^User=roquet$", unit.read_text(), re.MULTILINE)
    assert int(re.findall(r"LimitNOFILE=(\d+)", unit.read_text())[0]) >= 65_536


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    lines = re.sub(r"\\\n", " ", text).splitlines()
    rows = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, rest in rows]


def test_the_image_is_small_pinned_and_not_run_by_root() -> None:
    found = instructions()
    bases = [rest.split()[0] for name, rest in found if name == "FROM"]
    assert len(bases) == 2
    assert all(":" in base and not base.endswith(":latest") for base in bases)
    names = [name for name, _ in found]
    users = [rest for name, rest in found if name == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    assert names.index("HEALTHCHECK") > names.index("USER")
    assert "ADD" not in names
    for name, rest in found:
        if name == "RUN" and "apt-get install" in rest:
            assert "--no-install-recommends" in rest
            assert "rm -rf /var/lib/apt/lists" in rest
        if name == "RUN" and "pip install" in rest:
            assert "--require-hashes" in rest or "--no-deps" in rest


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    kept = {
        line[1:].rstrip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for name, rest in instructions():
        if name != "COPY" or rest.startswith("--from"):
            continue
        *sources, _ = rest.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert kept & {source.split("/")[0], source}, source


def test_the_images_command_is_one_of_ours() -> None:
    found = dict(instructions())
    assert found["ENTRYPOINT"] == '["roquet"]'
    command = re.findall(r'"([^"]*)"', found["CMD"])
    parser().parse_args(command)

"""The wheel, installed where nothing of the sources is: from `pip install` to the first message."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

import http2_peer
from roquet.proxy import messages as pb
from roquet.proxy.rules.methods import SERVICE
from roquet.testing.java import free_port

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
PACKAGES = {"roquet", "pyspark_roquet", "pyspark_roquet_log", "pyspark_roquet_meta"}
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheels")
    build = ["build", "--release", "--locked", "--interpreter", sys.executable, "--out", str(out)]
    subprocess.run([TOOLS / "maturin", *build], cwd=ROOT, check=True, capture_output=True)
    (found,) = out.glob("*.whl")
    return found


def test_wheel_has_every_package_and_fits_other_machines(wheel: Path) -> None:
    assert re.fullmatch(r"roquet-[\d.]+-cp311-abi3-manylinux_\d+_\d+_\w+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == PACKAGES
    assert [name for name in names if name.endswith("/LICENSE")]
    (points,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
    assert (
        "[pytest11]\nroquet=roquet.testing.plugin" in zipfile.ZipFile(wheel).read(points).decode()
    )
    for page in (*ROOT.glob("src/roquet/**/*.py"), *ROOT.glob("src/pyspark_roquet*/*.py")):
        assert str(page.relative_to(ROOT / "src")) in names
    wanted = [it for it in ROOT.glob("src/roquet/**/*") if it.suffix in {".html", ".css", ".js"}]
    assert {str(it.relative_to(ROOT / "src")) for it in wanted} <= set(names)


def test_installed_wheel_serves_its_first_message(wheel: Path, tmp_path: Path) -> None:
    env = tmp_path / "env"
    pip = [str(TOOLS / "uv"), "pip", "install", "-q", "--python", str(env / "bin/python")]
    base = ROOT / "requirements/base.txt"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    subprocess.run([*pip, "--require-hashes", "-r", str(base)], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    user = {"PATH": f"{env / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    chance = random.Random()
    name_server, broker = free_port(chance), free_port(chance)

    def roquet(*words: str) -> str:
        """Run a command to its end; return what it printed."""
        command = ["roquet", *words, "-n", f"127.0.0.1:{name_server}"]
        done = subprocess.run(
            command, cwd=tmp_path, env=user, check=False, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    ports = ["--namesrv-port", str(name_server), "--port", str(broker)]
    server = subprocess.Popen(
        ["roquet", "dev", *ports], cwd=tmp_path, env=user, stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline()
        roquet("pub", "hello", "hi {{count}}", "-c", "3")
        assert sorted(re.findall(r"hi \d", roquet("sub", "hello", "-g", "g1", "-c", "3"))) == [
            "hi 1",
            "hi 2",
            "hi 3",
        ]
    finally:
        server.terminate()
        server.communicate(timeout=30)
    assert server.returncode == 0


def test_commands_of_the_upgrade_page_replace_a_build_of_the_same_version(
    wheel: Path, tmp_path: Path
) -> None:
    page = (ROOT / "docs/guide/upgrade.md").read_text()
    (words,) = re.findall(r"/opt/roquet/bin/pip (install .* --force-reinstall) roquet-\*", page)
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    pip = [sys.executable, "-m", "pip", "-q", "--python", str(env / "bin/python")]
    subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True)
    (old,) = env.glob("lib/python*/site-packages/roquet/cli/app.py")
    new = old.read_bytes()
    old.write_text("raise SystemExit('an older build')\n")
    # As pip is used without the option: nothing happens, and the exit code is 0.
    subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True)
    assert old.read_bytes() != new
    subprocess.run([*pip, *words.split(), str(wheel)], check=True)
    assert old.read_bytes() == new


def test_installed_wheel_with_its_extras_serves_console_and_grpc(
    wheel: Path, tmp_path: Path
) -> None:
    env = tmp_path / "env"
    pip = [str(TOOLS / "uv"), "pip", "install", "-q", "--python", str(env / "bin/python")]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    pins = str(ROOT / "requirements/image.txt")
    subprocess.run([*pip, "--require-hashes", "-r", pins], check=True)
    # Nothing may be fetched now: the pinned packages are all that the two extras ask for.
    subprocess.run([*pip, "--no-index", f"roquet[console,grpc] @ {wheel.as_uri()}"], check=True)
    user = {"PATH": f"{env / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    chance = random.Random()
    name_server, broker, console, grpc = (free_port(chance) for _ in range(4))
    ports = ["--namesrv-port", str(name_server), "--port", str(broker)]
    ports += ["--console-port", str(console), "--proxy", "--grpc-port", str(grpc)]
    server = subprocess.Popen(
        ["roquet", "dev", *ports], cwd=tmp_path, env=user, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        said = [server.stdout.readline()]
        while "Ctrl-C" not in said[-1]:
            assert said[-1], "it has ended"
            said.append(server.stdout.readline())
        (link,) = [it.split()[1] for it in said if it.startswith("  console ")]
        address, _, token = link.partition("/login#")
        kind = {"content-type": "application/json"}
        body = json.dumps({"token": token}).encode()
        request = urllib.request.Request(f"{address}/api/login", body, kind)
        with urllib.request.urlopen(request, timeout=20) as answer:
            cookie = {"authorization": f"Bearer {json.load(answer)['session']}"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{address}/brokers", None, cookie), timeout=20
        ) as answer:
            assert "<h1>Brokers</h1>" in answer.read().decode()
        made = ["roquet", "topic", "create", "hello", "-n", f"127.0.0.1:{name_server}"]
        subprocess.run(made, cwd=tmp_path, env=user, check=True, capture_output=True, timeout=60)
        assert _queues(grpc, "hello") == 8
    finally:
        server.terminate()
        server.communicate(timeout=30)
    assert server.returncode == 0


def _queues(port: int, topic: str) -> int:
    """Ask for a route over gRPC; return of how many queues it tells."""
    asked = pb.QueryRouteRequest()
    asked.topic.name = topic
    asked.endpoints.scheme = 1
    asked.endpoints.addresses.add(host="127.0.0.1", port=port)
    data = asked.SerializeToString()
    about = http2_peer.headers(f"/{SERVICE}/QueryRoute", ("x-mq-client-id", "wheel"))
    with http2_peer.Peer.connect(port) as peer:
        peer.send(
            http2_peer.frame(http2_peer.HEADERS, 1, about, http2_peer.END_HEADERS),
            http2_peer.frame(
                http2_peer.DATA,
                1,
                b"\0" + len(data).to_bytes(4, "big") + data,
                http2_peer.END_STREAM,
            ),
        )
        found = peer.until(http2_peer.DATA)
    assert found is not None
    answer = pb.QueryRouteResponse.FromString(found[5:])
    assert answer.status.code == 20_000, answer.status
    return len(answer.message_queues)

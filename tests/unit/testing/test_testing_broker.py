"""The broker and the plug-in for pytest that applications test with, used as they would."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import roquet
from roquet.base.errors import Unreachable, UsageError
from roquet.testing import Broker

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/guide/python-client.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def bodies(url: str, topic: str, count: int) -> list[bytes]:
    with (
        roquet.sync.connect(url) as mq,
        mq.consumer("readers", topic, start="earliest") as consumer,
    ):
        found: list[bytes] = []
        while len(found) < count:
            received = consumer.receive(20)
            assert received is not None
            found.append(received.body)
        return found


def send(url: str, topic: str, body: bytes) -> None:
    with roquet.sync.connect(url) as mq, mq.producer() as producer:
        producer.send(topic, body)


def test_a_broker_for_tests_takes_and_gives_messages_and_leaves_nothing() -> None:
    broker = Broker()
    with pytest.raises(UsageError, match="does not run"):
        _ = broker.url
    with broker:
        send(broker.url, "orders", b"x" * 4_000_000)
        assert bodies(broker.url, "orders", 1) == [b"x" * 4_000_000]
        address, folder = broker.name_server, broker._folder
        assert folder is not None
        assert (folder / "store/commitlog").is_dir()
    assert not folder.exists()
    broker.close()
    with roquet.sync.connect(f"rmq://{address}") as mq, pytest.raises(Unreachable):
        mq.admin().topics.names()


def test_brokers_for_tests_run_side_by_side() -> None:
    with Broker() as first, Broker() as second:
        send(first.url, "orders", b"first")
        send(second.url, "orders", b"second")
        assert bodies(first.url, "orders", 1) == [b"first"]
        assert bodies(second.url, "orders", 1) == [b"second"]


def test_a_restart_keeps_messages_and_addresses() -> None:
    with Broker() as broker:
        send(broker.url, "orders", b"kept")
        url = broker.url
        with roquet.sync.connect(url) as mq, mq.producer() as producer:
            producer.send("orders", b"before")
            broker.restart()
            producer.send("orders", b"after", timeout_s=20)
        assert broker.url == url
        assert sorted(bodies(url, "orders", 3)) == [b"after", b"before", b"kept"]


def test_a_folder_that_is_given_is_kept(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker:
        send(broker.url, "orders", b"kept")
    with Broker(data=tmp_path / "data") as broker:
        assert bodies(broker.url, "orders", 1) == [b"kept"]


def test_settings_are_the_brokers_and_wrong_ones_are_told() -> None:
    with (
        Broker({"autoCreateTopicEnable": "false"}) as broker,
        roquet.sync.connect(broker.url) as mq,
        mq.producer() as producer,
        pytest.raises(roquet.Refused, match="create it"),
    ):
        producer.send("orders", b"x")
    for settings in ({"noSuchSetting": "1"}, {"flushDiskType": "SOMETIMES"}):
        broker = Broker(settings)
        with pytest.raises(UsageError, match=next(iter(settings))):
            broker.start()
        assert broker._folder is None


def test_a_broker_for_tests_serves_asyncio() -> None:
    async def tell() -> bytes:
        async with (
            Broker() as broker,
            roquet.connect(broker.url) as mq,
            mq.producer() as producer,
            mq.consumer("g", "orders", start="earliest") as consumer,
        ):
            await producer.send("orders", b"hello")
            received = await consumer.receive(20)
            assert received is not None
            return received.body

    assert asyncio.run(tell()) == b"hello"


INTERRUPTED = """
import asyncio, os, signal, sys
from roquet.testing import Broker, broker

# A shell has programmes in its background ignore it, and whatever they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
module = {"name server": broker.namesrv_app, "broker": broker.broker_app}[sys.argv[1]]
build = module.build


def interrupted_build(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    return build(*arguments)


module.build = interrupted_build
made = Broker()


async def enter():
    async with made:
        print("started")


try:
    if sys.argv[2] == "asyncio":
        asyncio.run(enter())
    else:
        made.start()
except KeyboardInterrupt:
    print("interrupted", made._folder)
module.build = build
with made as broker:
    print("runs", broker.url[:6])
"""


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
@pytest.mark.parametrize("at", ["name server", "broker"])
def test_an_interrupt_while_the_broker_for_tests_starts_is_quiet(
    tmp_path: Path, at: str, kind: str
) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, "-W", "always", str(script), at, kind],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout.splitlines(), done.stderr) == (["interrupted None", "runs rmq://"], "")


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a process of its own, where the plug-in is installed as the package says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = folder / "site/installed-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    points = project["entry-points"]["pytest11"]
    lines = [f"{name} = {module}" for name, module in points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]) + "\n")
    path = os.pathsep.join([str(folder / "site"), str(ROOT / "src")])
    # Options of the run that this test is in would hold there as well.
    ours = {name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, str(folder)],
        cwd=folder,
        env={**ours, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )


def test_the_plug_in_gives_the_fixtures_that_the_guide_shows(tmp_path: Path) -> None:
    (block,) = [it for it in BLOCK.findall(PAGE.read_text()) if "def test_" in it]
    (tmp_path / "test_guide.py").write_text(block)
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def roquet_settings():\n"
        "    return {'maxMessageSize': '1000'}\n"
    )
    (tmp_path / "test_more.py").write_text(
        "import pytest, roquet\n"
        "seen = set()\n"
        "@pytest.mark.parametrize('number', range(2))\n"
        "def test_topics_are_new(roquet_topic, roquet_broker, number):\n"
        "    assert not seen & {roquet_topic}\n"
        "    seen.add(roquet_topic)\n"
        "    seen.add(id(roquet_broker))\n"
        "def test_one_broker(roquet_client, roquet_topic):\n"
        "    assert len(seen) == 3\n"
        "    with roquet_client.producer() as producer, pytest.raises(roquet.Refused):\n"
        "        producer.send(roquet_topic, b'x' * 1001)\n"
    )
    done = run_pytest(tmp_path, "-W", "error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_the_plug_in_loads_no_broker_for_tests_that_need_none(tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text(
        "import sys\n"
        "def test_nothing():\n"
        "    assert 'roquet.testing.plugin' in sys.modules\n"
        "    assert not [it for it in sys.modules if it.startswith('roquet.broker')]\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

"""How a process of ours ends when its own code fails: never without a line or with code 0."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PANICS = """
import asyncio, logging, sys
from pathlib import Path
from roquet import _native
from roquet.cli.servers.serve import guarded
from roquet.service.process import runtime
from roquet.testing.cluster import broker_config, running_broker
from roquet.testing.cluster import send_command
from roquet.remoting.client import Client
from roquet.base.clock import SystemClock

logging.basicConfig(format="%(levelname)s %(message)s")

async def serve(stop):
    async with running_broker(Path(sys.argv[1]), "") as broker:
        client = Client(clock=SystemClock())
        await client.start()
        sent = await client.call(broker.identity.address, send_command("T", b"kept"), 20.0)
        print("sent", sent.code, flush=True)
        _native.plant_panic("planted\\nover two lines")
        await asyncio.wait_for(stop.wait(), 20)
        await client.stop()
    print("stopped in order", flush=True)
    return 0

sys.exit(guarded(lambda: runtime.run(serve)))
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_panic_in_a_thread_of_the_core_is_logged_and_stops_the_broker_in_order(
    tmp_path: Path,
) -> None:
    done = run(PANICS, str(tmp_path))
    assert done.returncode == 255, done.stderr
    assert done.stdout.splitlines() == ["sent 0", "stopped in order"]
    critical = [line for line in done.stderr.splitlines() if line.startswith("CRITICAL")]
    assert len(critical) == 1
    assert "thread planted at " in critical[0]
    assert critical[0].endswith(": planted over two lines")
    assert "CorePanickedError" in done.stderr.splitlines()[-1]


FAULT = """
import asyncio, os, signal
from roquet.service.process import runtime

async def serve(stop):
    os.kill(os.getpid(), signal.SIGSEGV)
    await stop.wait()
    return 0

runtime.run(serve)
"""


def test_a_fault_shows_where_the_process_was() -> None:
    done = run(FAULT)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "in serve" in done.stderr


DESCRIPTORS = """
import asyncio, os, resource, sys
from roquet.base.errors import UsageError
from roquet.ha.config import HaConfig
from roquet.ha.master import Entrance, HaMaster
from roquet.ha.replicas import ReplicaConfig, Replicas
from roquet.base.clock import SystemClock
from roquet.service.http.server import HttpServer, text_answer

async def main():
    rules = HaConfig().feed(1 << 30)
    master = HaMaster(
        None, Replicas(ReplicaConfig()), rules, entrance=Entrance(), clock=SystemClock()
    )
    page = HttpServer(lambda _: text_answer("ok"), host="127.0.0.1", port=0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = []
    try:
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for start in (page.start(), master.listen("127.0.0.1", 0)):
        try:
            await start
        except UsageError as error:
            print(error)

asyncio.run(main())
"""


def test_a_server_without_descriptors_says_so() -> None:
    """The loop skips addresses for which it gets no socket: there was an IndexError."""
    done = run(DESCRIPTORS)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("LimitNOFILE" in line for line in lines)


SMALL = """
import resource, runpy, sys
import roquet.broker.app, roquet.broker.config
limit, folder = int(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
sys.argv = ["roquet", "broker", "-s", "listenPort=0", "-s", "storePathRootDir=" + folder]
runpy.run_module("roquet", run_name="__main__")
"""


def test_a_broker_that_gets_too_few_descriptors_ends_with_one_line_and_253(tmp_path: Path) -> None:
    """At the loop, and at the store."""
    for limit in (14, 18):
        done = run(SMALL, str(limit), str(tmp_path / str(limit)))
        assert done.returncode == 253, (limit, done.stderr)
        said = [line for line in (done.stdout + done.stderr).splitlines() if "cannot start" in line]
        said += [line for line in done.stderr.splitlines() if line.startswith("roquet: ")]
        assert len(said) == 1, done.stderr
        assert "Too many open files" in said[0]


ARENAS = """
import ctypes, re, sys, tempfile, threading
from roquet.service.process import runtime

libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc.restype = ctypes.c_void_p
if sys.argv[1] == "shared":
    print("set", runtime.share_arenas())
together = threading.Barrier(8)

def take():
    together.wait()
    libc.malloc(1000)
    together.wait()

threads = [threading.Thread(target=take) for _ in range(8)]
for one in threads:
    one.start()
for one in threads:
    one.join()
with tempfile.TemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fdopen(file.fileno(), b"w"))
    assert libc.malloc_info(0, stream) == 0
    libc.fflush(stream)
    file.seek(0)
    print("arenas", len(re.findall(rb"<heap nr=", file.read())))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_threads_of_a_server_share_two_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    alone = run(ARENAS, "alone").stdout.split()
    assert int(alone[1]) > 2
    assert run(ARENAS, "shared").stdout.split() == ["set", "True", "arenas", "2"]
    monkeypatch.setenv("MALLOC_ARENA_MAX", "3")
    assert run(ARENAS, "shared").stdout.split() == ["set", "False", "arenas", "3"]


INTERVAL = """
import sys
from roquet.service.process import runtime

async def serve(stop):
    print(sys.getswitchinterval() <= 0.001)
    return 0

sys.exit(runtime.run(serve))
"""


def test_thread_beside_the_loop_keeps_the_interpreter_for_a_millisecond_at_most() -> None:
    assert run(INTERVAL).stdout.split() == ["True"]

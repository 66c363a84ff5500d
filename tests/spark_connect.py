"""A server of Spark Connect in a process of its own, and programs that are its clients."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from hosts_harness import until

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 300.0
_SUBMIT = Path(pyspark.__file__).parent / "bin/spark-submit"
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A busy machine may take long to start a Python worker.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@dataclasses.dataclass(frozen=True)
class ConnectServer:
    """A server that answers at `url`."""

    url: str
    log: Path

    def client(
        self, *words: str, code: int = 0, remote: str = "", timeout_s: float = 600.0
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these words as a client without a JVM; it has to end with `code`.

        `remote` becomes its SPARK_REMOTE.
        """
        # A client that starts a JVM after all fails at once.
        own = {"JAVA_HOME": "/nowhere", **({"SPARK_REMOTE": remote} if remote else {})}
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        said = f"{done.stdout}{done.stderr}"[-6000:]
        assert done.returncode == code, f"{said}\n--- server\n{self.log.read_text()[-4000:]}"
        return done


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    """Run a server with two cores for the length of a block."""
    folder.mkdir()
    log = folder / "server.log"
    # Port 0 makes the server choose, and it does not say what it chose.
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    settings = {**_SETTINGS, "spark.connect.grpc.binding.port": str(port)}
    settings |= {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    words = ["bash", str(_SUBMIT), "--master", "local[2]"]
    words += [word for it in settings.items() for word in ("--conf", "=".join(it))]
    words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [*words, "spark-internal"],
            cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def answers() -> bool:
        assert child.poll() is None, f"the server ended: {log.read_text()[-4000:]}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            return False
        return True

    try:
        until("Spark Connect's server listens at its port", answers, START_S)
        yield ConnectServer(f"sc://127.0.0.1:{port}", log)
    finally:
        child.terminate()
        try:
            child.wait(60)
        finally:
            # Its Python workers are of the same group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(30)

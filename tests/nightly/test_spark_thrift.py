"""Spark's Thrift server finds the formats too: a client of JDBC reads and writes a topic."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from roquet.client import Message
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
PROGRAMMES = Path(pyspark.__file__).parent / "bin"
SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
START_S = 600.0
ENVIRONMENT = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextlib.contextmanager
def thrift_server(folder: Path) -> Iterator[int]:
    """Start it and wait until it listens; give its port."""
    port = free_port()
    settings = (
        *("--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.python.authenticate.socketTimeout=120s"),
        *("--conf", f"spark.sql.warehouse.dir={folder / 'tables'}"),
        *("--hiveconf", f"hive.server2.thrift.port={port}"),
        *("--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"),
    )
    # What stands behind the name of the class is the server's own.
    submit = ("bash", str(PROGRAMMES / "spark-submit"), "--master", "local[2]")
    command = [*submit, *settings[:6], "--class", SERVER, "spark-internal", *settings[6:]]
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **ENVIRONMENT}, stdout=out, stderr=out
        )
    try:
        late = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert server.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < late, log.read_text()[-4000:]
            time.sleep(0.2)
        yield port
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(60)
        server.kill()
        server.wait()


def asked(folder: Path, port: int, *statements: str) -> str:
    """Return what a client of JDBC prints of them."""
    done = subprocess.run(
        [
            *("bash", str(PROGRAMMES / "beeline"), "-u", f"jdbc:hive2://127.0.0.1:{port}"),
            *("--outputformat=csv2", "--silent=true"),
            *(word for it in statements for word in ("-e", it)),
        ],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_thrift_client_reads_and_writes_a_topic(running: Running, tmp_path: Path) -> None:
    running.create_topic("orders", 2)
    running.create_topic("copies", 1)
    for queue in range(2):
        running.send("orders", [Message("orders", f"{queue}".encode())] * 3, queue)
    where = f"nameServers '{running.name_servers}'"
    both = "topic 'copies', subscribe 'copies'"
    with thrift_server(tmp_path) as port:
        found = asked(
            tmp_path,
            port,
            f"create table orders using roquet options ({where}, subscribe 'orders')",
            f"create temporary view copies using roquet options ({where}, {both})",
            "insert into copies (topic, body) select 'copies', body from orders where queueId = 1",
            "select concat('found ', cast(body as string), ' ', count(*)) from copies"
            " group by body",
        )
        assert "found 1 3" in found.splitlines()
        # The table is in the server's catalog: another connection has it.
        found = asked(tmp_path, port, "select concat('rows ', count(*)) from orders")
        assert "rows 6" in found.splitlines()

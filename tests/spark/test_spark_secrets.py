"""Keys come from the environment and go nowhere else: a broker that asks for them, and a search."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from demo.servers import running_process, until_open, until_registered

from roquet import sync
from roquet.acl.credentials import Credentials
from roquet.base.errors import Refused
from roquet.spark.options import SourceOptions
from roquet.spark.reading.batch import BatchReader
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark
KEY = "canaryReader"
SECRET = "canary-secret-5f1d"

JOB = """
import sys
from pathlib import Path
from demo.job import session

folder, names = sys.argv[1:3]
spark = session(Path(folder))
spark.sparkContext.setLogLevel("INFO")
wire = {"nameServers": names}
spark.range(50).selectExpr("cast(id as string) as body").write.format("roquet").mode(
    "append"
).options(**wire, topic="Guarded").save()
frame = spark.read.format("roquet").options(**wire, subscribe="Guarded").load()
frame.explain(True)
print("read", frame.count())
query = (
    spark.readStream.format("roquet")
    .options(**wire, subscribe="Guarded", startingOffsets="earliest")
    .option("metricsPath", folder + "/metrics")
    .load().writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True).start(folder + "/lake")
)
query.awaitTermination()
print("lake", spark.read.parquet(folder + "/lake").count(), query.lastProgress.json)
"""


TWO = """
import sys
from pathlib import Path
from demo.job import session

folder, north, south = sys.argv[1:4]
spark = session(Path(folder))
spark.sparkContext.setLogLevel("INFO")
near = {"nameServers": north, "credentials": "north-1"}
far = {"nameServers": south, "credentials": "south"}
spark.range(50).selectExpr("cast(id as string) as body").write.format("roquet").mode(
    "append"
).options(**near, topic="Guarded").save()
frame = spark.read.format("roquet").options(**near, subscribe="Guarded").load()
frame.explain(True)
query = (
    spark.readStream.format("roquet").options(**near, subscribe="Guarded")
    .option("startingOffsets", "earliest").load().select("body")
    .writeStream.format("roquet").options(**far, topic="Guarded", delivery="transactional")
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
print(query.lastProgress.json)
print("far", spark.read.format("roquet").options(**far, subscribe="Guarded").load().count())
tables = spark.read.format("roquet-meta").options(**far, table="topics").load()
print("topics", tables.where("topic = 'Guarded'").count())
for wrong in ({"credentials": "south"}, {}):
    try:
        reader = spark.read.format("roquet").options(nameServers=north, **wrong)
        reader.option("subscribe", "Guarded").load().count()
    except Exception as error:
        print("refused", wrong, "Refused" in str(error))
        print(error)
"""


@contextlib.contextmanager
def guarded(home: Path, key: str, secret: str) -> Iterator[str]:
    """Run a cluster of one account with an empty topic; yield its name server."""
    (home / "conf").mkdir(parents=True)
    accounts = home / "conf" / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text(f"accounts:\n- accessKey: {key}\n  secretKey: {secret}\n  admin: true\n")
    names, broker = free_port(), free_port()
    properties = home / "broker.properties"
    properties.write_text(
        f"brokerName=b\nlistenPort={broker}\nbindAddress=127.0.0.1\naclEnable=true\n"
        f"rocketmqHome={home}\nnamesrvAddr=127.0.0.1:{names}\nstorePathRootDir={home / 'store'}\n"
        "brokerFastFailureEnable=false\nmappedFileSizeCommitLog=1048576\n"
        "diskMaxUsedSpaceRatio=95\n"
    )
    address = f"127.0.0.1:{names}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            running_process(home / "namesrv.log", "namesrv", "--listen-port", str(names))
        )
        until_open(names)
        stack.enter_context(running_process(home / "broker.log", "broker", "-c", str(properties)))
        until_open(broker)
        with sync.connect(address, credentials=Credentials(key, secret)) as mq:
            until_registered(mq)
            mq.admin().topics.create("Guarded", queues=2)
        yield address


def searched(work: Path, secrets: list[str], told: bytes) -> list[str]:
    """Return the files, and the output, that have a secret in them. There is an event log."""
    files = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    assert any("events" in path.parts for path in files), "there is no event log"
    found = {str(path): data for path, data in files.items()} | {"output": told}
    return [name for name, data in found.items() if any(it.encode() in data for it in secrets)]


def run(job: str, work: Path, env: dict[str, str], *arguments: str) -> bytes:
    """Run a job that writes an event log; return what it printed."""
    (work / "events").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", job, str(work), *arguments],
        env={
            **os.environ,
            **env,
            "PYSPARK_SUBMIT_ARGS": "--conf spark.eventLog.enabled=true"
            f" --conf spark.eventLog.dir=file://{work / 'events'} pyspark-shell",
        },
        capture_output=True,
        check=False,
        timeout=500,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told.decode()[-4000:]
    return told


def test_keys_are_used_and_seen_nowhere(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with guarded(tmp_path / "home", KEY, SECRET) as address:
        given = {"nameServers": address, "subscribe": "Guarded"}
        with pytest.raises(Refused):
            BatchReader(SourceOptions.parse(given, streaming=False)).partitions()
        env = {"ROQUET_ACCESS_KEY": KEY, "ROQUET_SECRET_KEY": SECRET}
        told = run(JOB, work, env, address)
    assert b"read 50" in told
    assert b"lake 50" in told
    assert searched(work, [SECRET], told) == []


def test_one_job_has_keys_of_two_clusters(tmp_path: Path) -> None:
    """The option `credentials` names the variables of each."""
    work, far = tmp_path / "work", f"{SECRET}-far"
    file = tmp_path / "south.properties"
    file.touch(0o600)
    file.write_text(f"accessKey=theOther\nsecretKey={far}\n")
    env = {
        "ROQUET_ACCESS_KEY_NORTH_1": KEY,
        "ROQUET_SECRET_KEY_NORTH_1": SECRET,
        "ROQUET_CREDENTIALS_FILE_SOUTH": str(file),
    }
    with (
        guarded(tmp_path / "north", KEY, SECRET) as north,
        guarded(tmp_path / "south", "theOther", far) as south,
    ):
        told = run(TWO, work, env, north, south)
    assert b"far 50" in told
    assert b"topics 1" in told
    # The keys of the other cluster, and none, are refused.
    assert b"refused {'credentials': 'south'} True" in told
    assert b"refused {} True" in told
    assert searched(work, [SECRET, far], told) == []

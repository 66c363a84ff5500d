"""Keys come from the environment and go nowhere else: a broker that asks for them, and a search."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from demo.servers import free_port, running_process, until_open, until_registered

from roquet import sync
from roquet.acl.credentials import Credentials
from roquet.base.errors import Refused
from roquet.spark.options import SourceOptions
from roquet.spark.reading.batch import BatchReader

if TYPE_CHECKING:
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


def test_keys_are_used_and_seen_nowhere(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "conf").mkdir(parents=True)
    (work / "events").mkdir(parents=True)
    accounts = home / "conf" / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text(f"accounts:\n- accessKey: {KEY}\n  secretKey: {SECRET}\n  admin: true\n")
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
        with sync.connect(address, credentials=Credentials(KEY, SECRET)) as mq:
            until_registered(mq)
            mq.admin().topics.create("Guarded", queues=2)
        given = {"nameServers": address, "subscribe": "Guarded"}
        with pytest.raises(Refused):
            BatchReader(SourceOptions.parse(given, streaming=False)).partitions()
        done = subprocess.run(
            [sys.executable, "-c", JOB, str(work), address],
            env={
                **os.environ,
                "ROQUET_ACCESS_KEY": KEY,
                "ROQUET_SECRET_KEY": SECRET,
                "PYSPARK_SUBMIT_ARGS": "--conf spark.eventLog.enabled=true"
                f" --conf spark.eventLog.dir=file://{work / 'events'} pyspark-shell",
            },
            capture_output=True,
            check=False,
            timeout=500,
        )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told.decode()[-4000:]
    assert b"read 50" in done.stdout
    assert b"lake 50" in done.stdout
    files = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    assert any("events" in path.parts for path in files), "there is no event log"
    assert [str(path) for path, data in files.items() if SECRET.encode() in data] == []
    assert SECRET.encode() not in told

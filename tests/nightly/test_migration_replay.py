"""The guide of migration: a topic with its old messages goes to a new cluster, in a real Spark."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import roquet.sync
from roquet.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
GUIDE = Path(__file__).parents[2] / "docs/guide/migration.md"
COUNT = 50
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",
}


def test_history_goes_to_a_new_cluster_as_the_guide_says(tmp_path: Path) -> None:
    (block,) = [
        block
        for language, block in re.findall(
            r"^```(\w*)\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE
        )
        if not language and "roquet pipeline" in block
    ]
    settings = [word for name, value in _SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    with Broker() as old, Broker() as new:
        with roquet.sync.connect(old.url) as mq, mq.producer() as producer:
            for number in range(COUNT):
                producer.send("orders", b"%d" % number, tag="t", keys=[f"k-{number}"])
        with roquet.sync.connect(new.url) as mq:
            mq.admin().topics.create("orders-history", 4)
        text = block.replace("10.0.0.1:9876", old.name_server)
        text = text.replace("10.0.0.9:9876", new.name_server).replace("/lake", f"{tmp_path}/lake")
        for line in text.splitlines():
            words = shlex.split(line)
            assert words[:3] == ["roquet", "pipeline", "run"]
            done = subprocess.run(
                [sys.executable, "-m", "roquet", "pipeline", "run", *settings, *words[3:]],
                capture_output=True,
                text=True,
                check=False,
                timeout=800,
                cwd=tmp_path,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
            assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        found: dict[str, bytes] = {}
        with (
            roquet.sync.connect(new.url) as mq,
            mq.consumer("readers", "orders-history", start="earliest") as consumer,
        ):
            while len(found) < COUNT:
                message = consumer.receive(30)
                assert message is not None
                assert message.properties["replay.topic"] == "orders"
                found[message.keys[0]] = message.body
    assert found == {f"k-{number}": b"%d" % number for number in range(COUNT)}

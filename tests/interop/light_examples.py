"""Runs RocketMQ's own examples of light queues (LMQ) against our broker.

Their addresses are compiled in (name server 127.0.0.1:9876, broker 127.0.0.1:10911), so that this
runs in a network namespace of its own: `unshare -n python light_examples.py JARS FOLDER NAME...`.
Prints one line a program: its name and how many of the producer's messages it showed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from interop_world import has_route, our_broker, our_name_server, registered, until
from roquet.testing.java import BrokerPlan, java_command

PACKAGE = "org.apache.rocketmq.example.lmq"
NAMESRV = "127.0.0.1:9876"
SENT = 128
BODY = re.compile(r"body=\[([0-9, ]+)\]")


def program(jars: Path, folder: Path, name: str, *, enough: int, limit_s: float = 60.0) -> str:
    """Run an example until it has shown so many messages, or ends; return its output."""
    output = folder / f"{name}.out"
    command = java_command(jars, folder, f"{PACKAGE}.{name}", heap="128m")
    with output.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    end = time.monotonic() + limit_s
    while child.poll() is None and time.monotonic() < end and len(bodies(output)) < enough:
        time.sleep(0.2)
    if child.poll() is None:
        child.kill()
    child.wait()
    return output.read_text(errors="replace")


def bodies(output: Path) -> set[str]:
    """Return the messages that a consumer has shown."""
    found = BODY.findall(output.read_text(errors="replace"))
    texts = (bytes(int(one) for one in numbers.split(",")).decode() for numbers in found)
    return {text for text in texts if text.startswith("Hello RocketMQ")}


def main() -> None:
    """Start the servers, run the producer, then each consumer."""
    jars, folder, *consumers = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    on = {"enableLmq": "true", "enableMultiDispatch": "true", "timerWheelEnable": "true"}
    on["mappedFileSizeTimerLog"] = "65536"
    plan = BrokerPlan("broker-a", 10911, NAMESRV, folder / "store", on)
    name_server = our_name_server(folder / "namesrv", 9876).start()
    broker = our_broker(folder / "broker", plan).start()
    try:
        until("registration", lambda: registered(NAMESRV, "broker-a"))
        said = program(jars, folder, "LMQProducer", enough=SENT)
        print("LMQProducer", said.count("sendStatus=SEND_OK"))  # noqa: T201
        until("the parent's route", lambda: has_route(NAMESRV, "TopicLMQParent", "broker-a"))
        for name in consumers:
            program(jars, folder, name, enough=32 if name == "LMQPullConsumer" else SENT)
            print(name, len(bodies(folder / f"{name}.out")))  # noqa: T201
    finally:
        broker.kill()
        name_server.kill()


if __name__ == "__main__":
    main()

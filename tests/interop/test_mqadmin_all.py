"""Every command of mqadmin 5.5.0 against our cluster and against Java's, outputs compared."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import interop_commands as commands
from interop_twins import arguments, furnish, make_twins
from roquet.broker.network.routes import DECLINED
from roquet.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interop_twins import Twin
    from roquet.testing.java import Driver

OTHER_DEFAULTS = {"transactionOpBatchInterval": ("100", "3000")}
"""Settings whose default is another on purpose: ours and Java's."""
LISTS_CLIENTS = ("consumerProgress", "producer")
"""What these show has the consumers that other commands have made, until those have left."""
LOOKS = 20
"""So often they are asked: with a machine that has other work a consumer leaves seconds later."""


@dataclasses.dataclass
class Pair:
    """The two clusters and the JVM with the tool."""

    ours: Twin
    java: Twin
    driver: Driver

    def run(self, twin: Twin, command: commands.Command, words: str) -> str:
        given = arguments(words, twin.facts)
        return self.driver.mqadmin_for(command.limit_s, command.name, "-n", twin.namesrv, *given)

    def both(self, command: commands.Command) -> Iterator[tuple[str, str]]:
        numbers = command.result != commands.APART
        for words in command.asked:
            ours, java = self._run_both(command, words)
            for _ in range(LOOKS if command.name in LISTS_CLIENTS else 0):
                shown = self.ours.shown(ours, numbers=numbers)
                if shown == self.java.shown(java, numbers=numbers):
                    break
                time.sleep(0.5)
                ours, java = self._run_both(command, words)
            yield ours, java

    def _run_both(self, command: commands.Command, words: str) -> tuple[str, str]:
        return self.run(self.ours, command, words), self.run(self.java, command, words)


@pytest.fixture(scope="module")
def pair(jars: Path, driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    ours, java = make_twins(jars, tmp_path_factory.mktemp("twins"))
    try:
        for twin in (java, ours):
            twin.start()
            furnish(driver, twin)
        yield Pair(ours, java, driver)
        for twin in (ours, java):
            for client in ("client", "maker"):
                driver.leave(twin.facts[client])
    finally:
        ours.stop()
        java.stop()


def keys(text: str) -> dict[str, str]:
    """Return the `key : value` or `key = value` lines of an output."""
    found = re.findall(
        r"^(?:127\.0\.0\.1:\d+\s+)?(\S+?)[ \t]*[:=][ \t]+(.*?)[ \t]*$", text, re.MULTILINE
    )
    return dict(found)


def is_declined(text: str, command: commands.Command) -> bool:
    """Tell whether a tool was told code 3, with the number of the request; or asked nothing."""
    told = re.findall(r"CODE: (\d+)  DESC:  request type (\d+) not supported", text)
    if not command.codes:
        return not told and "No topic route to do the remapping" in text
    return told == [("3", str(command.codes[0]))]


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda it: it.name)
def test_command(pair: Pair, command: commands.Command) -> None:
    served = not any(RequestCode(code) in DECLINED for code in command.codes)
    for ours, java in pair.both(command):
        shown = f"ours:\n{ours}\nJava's:\n{java}"
        if command.result == commands.DECLINED and not (served and command.codes):
            assert is_declined(ours, command), shown
        elif command.result == commands.BETTER:
            assert "Exception" not in ours, shown
            check_export(pair.ours, command, ours)
        elif command.result == commands.ENDLESS:
            assert ours == java == "", shown
        elif command.result == commands.OWN:
            assert keys(ours), shown
        else:
            numbers = command.result != commands.APART
            assert pair.ours.shown(ours, numbers=numbers) == pair.java.shown(
                java, numbers=numbers
            ), shown


def check_export(twin: Twin, command: commands.Command, shown: str) -> None:
    """Look into the file that a tool says it has written: it has what the broker has."""
    path = re.search(r"export (\S+\.json) success", shown)
    assert path is not None, shown
    written = json.loads(Path(path[1]).read_bytes())
    facts = twin.facts
    if command.name == "exportMetrics":
        report = written["evaluateReport"][facts["broker"]]
        assert report["runtimeVersion"] == {
            "rocketmqVersion": "V5_5_0",
            "clientInfo": ["JAVA%V5_5_0"],
        }
        assert report["runtimeQuota"]["topicSize"] >= 1
        assert report["runtimeQuota"]["groupSize"] >= 2
        assert float(report["runtimeQuota"]["messageAverageSize"]) > 100
        return
    topic = written["topicConfigTable"][facts["topic"]]
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (4, 4, 6)
    if path[1].endswith("metadata.json"):
        assert {facts["group"], facts["online"]} <= set(written["subscriptionGroupTable"])


def test_the_runtime_keys_are_those_of_java(pair: Pair) -> None:
    (command,) = [it for it in commands.COMMANDS if it.name == "brokerStatus"]
    ours, java = (keys(text) for text in next(pair.both(command)))
    log_ratio = "commitLogDiskRatio_"
    theirs = {key for key in java if not key.startswith(log_ratio)}
    assert theirs <= set(ours)
    assert any(key.startswith(log_ratio) for key in ours)
    for name in ("brokerVersionDesc", "brokerActive", "sendThreadPoolQueueCapacity"):
        assert ours[name] == java[name]


def test_settings_that_both_have_agree(pair: Pair) -> None:
    """One file for both, and defaults for the rest."""
    (command,) = [it for it in commands.COMMANDS if it.name == "getBrokerConfig"]
    ours, java = (keys(text) for text in next(pair.both(command)))
    both = set(ours) & set(java)
    assert len(both) > 60
    # Ports and folders are each broker's own.
    own = {"namesrvAddr", "listenPort", "haListenPort"}
    own |= {"storePathRootDir", "storePathCommitLog", "rocketmqHome"}
    differ = {name: (ours[name], java[name]) for name in both - own if ours[name] != java[name]}
    assert differ == OTHER_DEFAULTS

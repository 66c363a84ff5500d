"""Settings: precedence, limits, one-line errors, property files, live changes."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from roquet.base.config import (
    as_properties,
    change,
    env_name,
    flag_name,
    load,
    setting,
    settings,
)
from roquet.base.errors import UsageError
from roquet.base.properties_file import read_properties, write_properties
from roquet.broker.config import load_config
from roquet.namesrv.config import load_config as load_namesrv
from roquet.namesrv.kv import KeyValues
from roquet.relay.config import load_config as load_relay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _even(value: int) -> str | None:
    return None if value % 2 == 0 else "must be even"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    size_max: int = setting("maxMessageSize", 4096, "Body bytes.", unit="bytes", low=1, live=True)
    mode: str = setting("flushDiskType", "ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    pairs: int = setting("pairs", 2, check=_even)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    name: str = setting("brokerName", doc="The broker's name.")
    sending: Sending = dataclasses.field(default_factory=Sending)
    port: int = setting("listenPort", 10911, low=0, high=65535)
    quiet: bool = setting("quiet", default=False, live=True)
    ratio: float = setting("diskRatio", 0.75)
    address: str | None = setting("brokerIP1", None)


NAME = {"brokerName": "b"}


def test_defaults() -> None:
    config, report = load(Whole, NAME)
    assert config == Whole(name="b")
    assert report.lines() == []
    assert report.sources == {"brokerName": "file"}


def test_precedence() -> None:
    file = {"listenPort": "1", "maxMessageSize": " 2 ", "quiet": "TRUE", "brokerName": "b"}
    env = {"ROQUET_LISTEN_PORT": "3", "ROQUET_MAX_MESSAGE_SIZE": "4", "PATH": "x"}
    config, report = load(Whole, file, env, {"listen-port": 5, "quiet": None, "brokerIP1": "h"})
    assert (config.port, config.sending.size_max, config.quiet) == (5, 4, True)
    assert config.address == "h"
    assert report.sources["listenPort"] == "flag"
    assert report.sources["maxMessageSize"] == "env"
    assert load(Whole, NAME, None, {"listen_port": "7", "quiet": True})[0].port == 7


def test_names() -> None:
    assert env_name("brokerIP1") == "ROQUET_BROKER_IP1"
    assert env_name("listenPort") == "ROQUET_LISTEN_PORT"
    assert flag_name("maxMessageSize") == "max-message-size"
    assert [path for path, _, _ in settings(Whole)][1] == ("sending", "size_max")


def test_unknown_and_unimplemented_keys_are_told() -> None:
    file = {**NAME, "listenPrt": "1", "enableControllerMode": "false"}
    _, report = load(
        Whole, file, {"ROQUET_NONSENSE": "1", "ROQUET_LOG": "x"}, other_env={"ROQUET_LOG"}
    )
    assert report.unknown == ("ROQUET_NONSENSE", "listenPrt")
    assert report.unimplemented == ("enableControllerMode",)
    assert len(report.lines()) == 2


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("listenPort", "70000", "within 0..65535"),
        ("listenPort", "1_0", "integer"),
        ("listenPort", "٣", "integer"),
        ("listenPort", "", "integer"),
        ("maxMessageSize", "0", "at least 1 bytes"),
        ("quiet", "yes", "true or false"),
        ("flushDiskType", "SOMETIMES", "ASYNC_FLUSH, SYNC_FLUSH"),
        ("diskRatio", "nan", "decimal"),
        ("pairs", "3", "even"),
    ],
)
def test_a_bad_value_is_one_line_with_key_value_and_rule(key: str, value: str, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(Whole, {**NAME, key: value})
    text = str(caught.value)
    assert key in text
    assert repr(value) in text
    assert rule in text
    assert "\n" not in text


def test_what_has_to_be_given_and_what_does_not_exist() -> None:
    with pytest.raises(UsageError, match="brokerName has to be set") as caught:
        load(Whole)
    assert "-s brokerName=VALUE, the variable ROQUET_BROKER_NAME or" in str(caught.value)
    with pytest.raises(UsageError, match="no such setting"):
        load(Whole, NAME, None, {"nope": "1"})


def test_properties_of_a_configuration() -> None:
    found = as_properties(Whole(name="b"))
    assert found["quiet"] == "false"
    assert found["maxMessageSize"] == "4096"
    assert "brokerIP1" not in found


def test_live_changes() -> None:
    config = Whole(name="b")
    changed = change(config, {"maxMessageSize": "9", "quiet": "true"})
    assert (changed.sending.size_max, changed.quiet, changed.port) == (9, True, 10911)
    assert config.sending.size_max == 4096


@pytest.mark.parametrize(
    "bad",
    [
        {"listenPort": "1"},
        {"nope": "1"},
        {"maxMessageSize": "-1"},
        {"quiet": "true\nlistenPort=1"},
        {"quiet": "t" * 9000},
    ],
)
def test_bad_live_changes(bad: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        change(Whole(name="b"), bad)


def test_property_files() -> None:
    text = (
        b"# comment = 1\n! another\n\n  a = 1  \r\nb:2\nc 3\nd=x\\\n   y\\\\\n"
        b"e\\ f=\\u4e2d\\t\n#x\\\ng=h=i\nempty\n  k\\:l : m\na=9\nlast\\"
    )
    assert read_properties(text) == {
        "a": "9",
        "b": "2",
        "c": "3",
        "d": "xy\\",
        "e f": "中",
        "g": "h=i",
        "empty": "",
        "k:l": "m",
        "last": "",
    }
    assert read_properties("ä=ö".encode()) == {"ä": "ö"}
    assert read_properties(b"\xe4=\xf6") == {"ä": "ö"}
    for bad in (b"a=\\u12", b"x" * 1_100_000):
        with pytest.raises(UsageError):
            read_properties(bad)


def test_a_written_file_reads_the_same_and_injects_nothing() -> None:
    values = {"a b": " x=1:2\nlistenPort=1\r#", "k!": "中😀\\", "e": ""}
    written = write_properties(values)
    assert written.count(b"\n") == 3
    assert read_properties(written) == values


def test_property_file_of_random_bytes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    for data in (os.urandom(200) + b"\0", b"\xff\xfe\x01", b"colour=red\nsize=9\n"):
        file.write_bytes(data)
        with pytest.raises(UsageError, match="property file"):
            load_config(file, {}, {})
        with pytest.raises(UsageError, match="property file"):
            load_namesrv(file, {}, {})
    file.write_bytes(b"# only a comment\n")
    load_config(file, {}, {})


def test_unknown_setting_is_answered_with_the_one_it_resembles(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("listenPrt=1\nbrokerName=b\nnothing.like.it=1\n")
    _, report = load_config(file, {"ROQUET_LISTEN_PROT": "1"}, {})
    (line,) = report.lines()
    assert "listenPrt (did you mean listenPort?)" in line
    assert "ROQUET_LISTEN_PROT (did you mean ROQUET_LISTEN_PORT?)" in line
    assert "nothing.like.it" in line
    with pytest.raises(UsageError, match=r"^foo = '1' .*no such setting$"):
        load_config(None, {}, {"foo": "1"})
    with pytest.raises(UsageError, match=r"listenPrt = '1'.*did you mean listenPort\?"):
        load_config(None, {}, {"listenPrt": "1"})


def test_case_of_a_name_does_not_matter_in_file_environment_and_flags() -> None:
    config, report = load(
        Whole,
        {"BROKERNAME": "b", "listenport": "1", "maxmessagesize": "2", "Max-Message-Size": "9"},
        {"ROQUET_LISTENPORT": "3", "roquet_quiet": "true"},
        {"DISKRATIO": "0.5"},
    )
    assert (config.name, config.port, config.sending.size_max) == ("b", 3, 2)
    assert (config.quiet, config.ratio) == (True, 0.5)
    # Of two spellings one counts, and the other is told.
    assert report.unknown == ("Max-Message-Size",)
    exact = {"brokername": "no", "brokerName": "b", "ENABLECONTROLLERMODE": "false"}
    env = {"ROQUET_LISTENPORT": "3", "ROQUET_LISTEN_PORT": "4"}
    config, report = load(Whole, exact, env)
    assert (config.name, config.port) == ("b", 4)
    assert report.unknown == ("ROQUET_LISTENPORT", "brokername")
    assert report.unimplemented == ("ENABLECONTROLLERMODE",)


def test_address_of_a_name_server_counts_in_any_case(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("BINDADDRESS=127.0.0.1\nlistenport=0\n")
    config, _ = load_namesrv(file, {}, {})
    assert (config.bind_address, config.listen_port) == ("127.0.0.1", 0)


def test_all_that_is_wrong_is_told_at_once() -> None:
    file = {"listenPort": "x", "quiet": "perhaps", "maxMessageSize": "0"}
    with pytest.raises(UsageError) as caught:
        load(Whole, file, {}, {"nope": 1})
    text = str(caught.value)
    assert text.startswith("5 settings are wrong: ")
    for part in ("listenPort = 'x'", "quiet = 'perhaps'", "maxMessageSize = '0'", "nope = '1'"):
        assert part in text
    assert "brokerName has to be set" in text
    assert "\n" not in text


@pytest.mark.parametrize("read", [load_config, load_namesrv, load_relay])
def test_file_of_settings_longer_than_all_memory_is_refused_by_its_first_bytes(
    tmp_path: Path, read: Callable[[Path, dict[str, str], dict[str, str]], object]
) -> None:
    file = tmp_path / "server.conf"
    file.write_text("# a comment\n")
    os.truncate(file, 1 << 43)
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        read(file, {}, {})


def test_key_value_file_longer_than_all_memory_is_passed_over_for_the_one_before(
    tmp_path: Path,
) -> None:
    file = tmp_path / "kvConfig.json"
    values = KeyValues(file)
    values.put("n", "k", "1")
    values.put("n", "k", "2")
    os.truncate(file, 1 << 43)
    again = KeyValues(file)
    again.load()
    assert again.get("n", "k") == "1"

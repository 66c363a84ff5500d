"""A broker's property file: Java's names, our errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.base.errors import UsageError
from roquet.broker.config import load_config

JAVA = Path(__file__).parents[2] / "vectors" / "broker.conf"


def test_a_java_file_is_taken_as_it_is() -> None:
    config, report = load_config(JAVA, {}, {})
    assert report.unknown == ()
    assert config.identity.name == config.topics.broker_name == "broker-a"
    assert config.identity.ip1 == "127.0.0.2"
    assert config.server.bind_address == "127.0.0.1"
    assert config.store.native()["mappedFileSizeCommitLog"] == 131_072
    assert config.send.message_size_max == config.store.message_bytes_max == 65_536
    assert config.registration.name_servers == "127.0.0.1:9870"


def test_flags_win_over_environment_over_file() -> None:
    config, _ = load_config(JAVA, {"ROQUET_LISTEN_PORT": "20001"}, {"brokerName": "b"})
    assert config.server.port == 20_001
    assert config.identity.name == "b"
    config, _ = load_config(JAVA, {"ROQUET_LISTEN_PORT": "20001"}, {"listen-port": 20_002})
    assert config.server.port == 20_002
    config, _ = load_config(None, {"NAMESRV_ADDR": "10.0.0.1:9876"}, {})
    assert config.registration.name_servers == "10.0.0.1:9876"


def test_without_a_file_only_this_machine_is_served(tmp_path: Path) -> None:
    config, _ = load_config(None, {}, {})
    assert (config.server.bind_address, config.identity.ip1) == ("127.0.0.1", "127.0.0.1")
    empty = tmp_path / "broker.conf"
    empty.write_text("")
    config, _ = load_config(empty, {}, {})
    assert config.server.bind_address == "0.0.0.0"
    assert config.identity.ip1 != "0.0.0.0"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("listenPort=70000", r"listenPort.*70000.*0\.\.65535"),
        ("brokerIP1=localhost", "brokerIP1.*IP address"),
        ("namesrvAddr=somewhere", "namesrvAddr.*host:port"),
        ("brokerRole=KING", "brokerRole.*KING"),
        ("brokerRole=SLAVE", "brokerRole"),
        ("enableDLegerCommitLog=true", "enableDLegerCommitLog.*controller"),
        ("inSyncReplicas=0", "inSyncReplicas.*1"),
        ("brokerId=1", "brokerId"),
        ("brokerName=a/b", "brokerName"),
        ("flushDiskType=MAYBE", "flushDiskType"),
        ("maxMessageSize=4m", "maxMessageSize"),
    ],
)
def test_a_bad_value_is_one_line_with_key_and_rule(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(line)
    with pytest.raises(UsageError, match=says) as caught:
        load_config(file, {}, {})
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.conf"):
        load_config(tmp_path / "no.conf", {}, {})

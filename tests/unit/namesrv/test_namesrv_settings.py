"""Settings: read from a property file, shown, changed by request, and never injected."""

from __future__ import annotations

from pathlib import Path

import pytest

from namesrv_harness import looped, serving
from roquet.base.errors import UsageError
from roquet.base.properties_file import read_properties
from roquet.namesrv.config import MARK, load_config

SETTINGS_FILE = "namesrv.properties"


@looped
async def test_settings_are_shown_and_changed(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        before = read_properties((await asker.ask(319)).body)
        assert before["enableTopicList"] == "true"
        assert before["kvConfigPath"] == str(tmp_path / "kvConfig.json")
        assert (await asker.ask(318, body=b"enableTopicList=false\n")).code == 0
        assert (await asker.ask(318, body=b"waitSecondsForService=7\n")).code == 0
        assert (await asker.ask(224, {"cluster": "c"})).remark == "disable"
        after = read_properties((await asker.ask(319)).body)
        assert after == {**before, "enableTopicList": "false", "waitSecondsForService": "7"}
        written = read_properties((tmp_path / SETTINGS_FILE).read_bytes())
        assert written == {"enableTopicList": "false", "waitSecondsForService": "7"}


@looped
async def test_what_the_operator_wrote_stays(tmp_path: Path) -> None:
    file = tmp_path / SETTINGS_FILE
    file.write_text("# mine\nenableTopicList = true\nlistenPort=0")
    async with serving(tmp_path) as served:
        asker = await served.connect()
        await asker.ask(318, body=b"enableTopicList=false")
    async with serving(tmp_path) as served:
        asker = await served.connect()
        await asker.ask(318, body=b"orderMessageEnable=true")
    assert file.read_text() == (
        f"# mine\nenableTopicList = true\nlistenPort=0\n{MARK}\n"
        "enableTopicList=false\norderMessageEnable=true\n"
    )
    config, _ = load_config(file, {}, {})
    assert config.enable_topic_list is False
    assert config.order_message_enable is True


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"kvConfigPath=/etc/passwd", 16),
        (b"configStorePath=/tmp/x", 16),
        (b"configBlackList=", 16),
        (b"rocketmqHome=/tmp", 16),
        (b"listenPort=1", 29),
        (b"noSuchKey=1", 29),
        (b"enableTopicList=yes", 29),
        (b"waitSecondsForService=-1", 29),
        (b"waitSecondsForService=7\\nkvConfigPath\\=/etc/passwd", 29),
        (b"enableTopicList=false\\u000AkvConfigPath=/x", 29),
        (b"waitSecondsForService=7\nlistenPort=1", 29),
        (b"a\\u00zz=1", 1),
        (b"waitSecondsForService=" + b"7" * 100_000, 29),
    ],
)
@looped
async def test_cve_2023_37582_a_bad_change_changes_nothing(
    body: bytes, code: int, tmp_path: Path
) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        before = (await asker.ask(319)).body
        answer = await asker.ask(318, body=body)
        assert answer.code == code
        assert answer.remark
        assert (await asker.ask(319)).body == before
        assert not (tmp_path / SETTINGS_FILE).exists()


@looped
async def test_keys_of_the_black_list_are_those_of_the_settings(tmp_path: Path) -> None:
    async with serving(tmp_path, config_black_list="enableTopicList;listenPort") as served:
        asker = await served.connect()
        refused = await asker.ask(318, body=b"enableTopicList=false\n")
        assert (refused.code, refused.remark) == (16, "Can not update config in black list.")
        assert (await asker.ask(318, body=b"enableAllTopicList=false\n")).code == 0


def test_a_property_file_opens_all_addresses_and_its_absence_none(tmp_path: Path) -> None:
    file = tmp_path / "n.conf"
    file.write_text("listenPort=1234\nserverWorkerThreads=3\nlistenPrt=5\n")
    config, report = load_config(file, {}, {})
    assert (config.host, config.listen_port) == ("0.0.0.0", 1234)
    assert config.config_store_path == str(file)
    assert (report.unknown, report.unimplemented) == (("listenPrt",), ("serverWorkerThreads",))
    config, _ = load_config(None, {}, {})
    assert (config.host, config.listen_port) == ("127.0.0.1", 9876)
    config, _ = load_config(file, {"ROQUET_LISTEN_PORT": "5"}, {"bind-address": "::1"})
    assert (config.host, config.listen_port) == ("::1", 5)


def test_a_bad_setting_is_one_line_with_key_value_and_rule(tmp_path: Path) -> None:
    file = tmp_path / "n.conf"
    file.write_text("listenPort=99999\n")
    with pytest.raises(UsageError, match=r"^listenPort = '99999' \(file\): must be .*0\.\.65535"):
        load_config(file, {}, {})
    with pytest.raises(UsageError, match="No such file"):
        load_config(Path("/nowhere/n.conf"), {}, {})

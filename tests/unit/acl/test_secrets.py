"""No secret of the settings is shown, by nothing that prints settings; one mark decides."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tools.attack import matrix
from tools.attack.__main__ import SECRETS

from broker_harness import play
from namesrv_harness import looped, serving
from roquet.base.config import HIDDEN, as_properties, change, changed_texts, load, setting
from roquet.base.config import settings as declared
from roquet.base.errors import UsageError
from roquet.base.properties_file import read_properties
from roquet.broker.config import BrokerConfig
from roquet.namesrv.config import NamesrvConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.relay.config import RelayConfig
from roquet.relay.config import load_config as load_relay
from roquet.remoting.tls import TlsConfig
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from roquet.testing.cluster import Cluster

SOUNDS_SECRET = re.compile(r"secret|password|passwd|token|credential", re.IGNORECASE)
CLASSES: tuple[type[Any], ...] = (BrokerConfig, NamesrvConfig, RelayConfig)


def hidden(config: object) -> str:
    """Return everything that is made of a configuration for eyes."""
    return repr(config) + str(config) + str(as_properties(config))


@pytest.mark.parametrize("cls", CLASSES)
def test_settings_whose_name_sounds_secret_are_marked(cls: type[Any]) -> None:
    for _, about, kind in declared(cls):
        if kind is not bool and SOUNDS_SECRET.search(about.java):
            assert about.secret, about.java


@pytest.mark.parametrize("cls", CLASSES)
def test_settings_marked_secret_are_shown_nowhere(cls: type[Any]) -> None:
    secrets = {about.java for _, about, _ in declared(cls) if about.secret}
    assert secrets
    canaries = {name: f"canary:of-{name}-which-is-long" for name in secrets}
    config, report = load(cls, canaries)
    assert "canary" not in hidden(config) + repr(report)
    assert {as_properties(config)[name] for name in secrets} == {HIDDEN}
    for name in secrets:
        with pytest.raises(UsageError) as caught:
            load(cls, {**canaries, name: HIDDEN})
        assert "give the secret itself" in str(caught.value)


def test_secret_sent_back_as_stars_stays_what_it_is() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        word: str = setting("someSecret", "", "A secret.", live=True, secret=True)
        size: int = setting("someSize", 1, "A size.", live=True)

    before, _ = load(Config, {"someSecret": "the secret"})
    shown = as_properties(before)
    after = change(before, {**shown, "someSize": "2"})
    assert (after.word, after.size) == ("the secret", 2)
    assert changed_texts(before, after) == {"someSize": "2"}
    # A file gets the secret itself, since it is read from there.
    other = change(after, {"someSecret": "another"})
    assert changed_texts(after, other) == {"someSecret": "another"}


def test_broken_property_file_error_does_not_show_the_value() -> None:
    with pytest.raises(UsageError) as caught:
        read_properties(b"a=b\nhaSharedSecret=canary\\uZZZZ\n")
    assert str(caught.value) == (
        "entry 2, 'haSharedSecret': bad \\u escape: four hex digits are expected"
    )


def test_relay_address_with_a_password_is_refused() -> None:
    with pytest.raises(UsageError, match="config_url"):
        load_relay(None, {}, {"config_url": "http://user:password@host/servers"})


def test_configuration_that_is_read_and_sent_back_keeps_the_secret(tmp_path: Path) -> None:
    secret = SECRETS["haSharedSecret"]

    async def tell(it: Cluster) -> None:
        shown = (await it.call(Command(RequestCode.GET_BROKER_CONFIG, {}))).body
        assert b"haSharedSecret=******" in shown
        assert secret.encode() not in shown
        body = b"haSharedSecret=******\nbrokerPermission=4\n"
        assert (await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, {}, body))).code == 0
        shown = (await it.call(Command(RequestCode.GET_BROKER_CONFIG, {}))).body
        assert b"brokerPermission=4" in shown
        other = b"haSharedSecret=another-secret-of-attackers"
        answer = await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, {}, other))
        assert answer.code == 29
        assert "another-secret" not in (answer.remark or "")

    play(tmp_path, tell, haSharedSecret=secret)


@looped
async def test_name_server_answers_show_no_secret(tmp_path: Path) -> None:
    tls = TlsConfig(server_password="canary-of-a-server", client_password="canary-of-a-client")
    async with serving(tmp_path, tls=tls) as served:
        asker = await served.connect()
        for code in matrix.CODES:
            for one in matrix.attempts(code, matrix.Aim(topic="t", group="g")):
                answer = await asker.ask(code, one.ext, body=one.body)
                assert "canary" not in repr(answer), code
        shown = (await asker.ask(319)).body
        assert b"tls.server.keyPassword=******" in shown
        changed = await asker.ask(318, body=b"tls.server.keyPassword=******\nenableTopicList=false")
        assert changed.code == 0
        assert b"enableTopicList=false" in (await asker.ask(319)).body
    assert b"keyPassword" not in (tmp_path / "namesrv.properties").read_bytes()


def test_pages_of_metrics_and_health_show_no_secret(tmp_path: Path) -> None:
    port = free_port()

    def pages() -> str:
        found: list[str] = []
        for path in ("metrics", "livez", "readyz"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=120) as page:
                found.append(page.read().decode())
        return "".join(found)

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        shown = await asyncio.to_thread(pages)
        assert "# TYPE" in shown
        assert "canary" not in shown

    exported = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    play(tmp_path, tell, **exported, **{k: v for k, v in SECRETS.items() if k[0] == "h"})


@pytest.mark.parametrize("what", [["-p"], ["-m"], ["--explain"], ["-s", "haSharedSecret:canary"]])
def test_command_line_shows_no_secret(tmp_path: Path, what: list[str]) -> None:
    conf = tmp_path / "broker.conf"
    lines = {**SECRETS, "storePathRootDir": str(tmp_path / "store")}
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    ended = _run(["broker", "-c", str(conf), *what], {})
    assert ended.stdout + ended.stderr
    assert "canary" not in ended.stdout + ended.stderr
    assert (ended.returncode == 0) == (what[0] != "-s")


def _run(arguments: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "roquet", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )

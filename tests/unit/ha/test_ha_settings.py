"""Settings of a pair: what they may be, and what masters and slaves make of them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from pair_harness import certificate
from roquet.base.errors import UsageError
from roquet.ha.config import HaRules
from roquet.testing.cluster import broker_config

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("address", "master"),
    [
        # Shorter ones mean none, as in Java.
        ("", None),
        ("a:123", None),
        ("none!", None),
        ("ab:123", "ab:123"),
        ("10.0.0.1:10912", "10.0.0.1:10912"),
    ],
)
def test_configured_master_is_an_address_of_six_letters_or_more(
    tmp_path: Path, address: str, master: str | None
) -> None:
    broker_config(tmp_path, haMasterAddress=address)
    assert HaRules(master_address=address).configured_master == master


@pytest.mark.parametrize("address", ["nowhere", "a.b.c.d", "host:port"])
def test_master_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(UsageError, match="must be host:port"):
        broker_config(tmp_path, haMasterAddress=address)


@pytest.mark.parametrize(("secret", "taken"), [("", True), ("x" * 15, False), ("x" * 16, True)])
def test_secret_has_sixteen_bytes_or_is_none(tmp_path: Path, secret: str, *, taken: bool) -> None:
    if taken:
        broker_config(tmp_path, haSharedSecret=secret)
    else:
        with pytest.raises(UsageError, match="must have 16 bytes or more"):
            broker_config(tmp_path, haSharedSecret=secret)
    # Bytes count, not letters.
    broker_config(tmp_path / "bytes", haSharedSecret="\u00e9" * 8)


def test_rules_of_feeding_and_copying_are_those_of_the_settings() -> None:
    rules = HaRules(batch=7, heartbeat_ms=11, housekeeping_ms=13, rate_max=17)
    feed = rules.feed(19)
    assert (feed.batch, feed.heartbeat_ms, feed.housekeeping_ms, feed.file_bytes) == (7, 11, 13, 19)
    assert feed.bytes_per_second == 0
    limited = HaRules(rate_max=17, flow_control=True)
    assert limited.feed(19).bytes_per_second == 17
    copier = rules.copier()
    assert (copier.heartbeat_ms, copier.housekeeping_ms) == (11, 13)


def test_tls_of_a_pair_needs_its_files_and_checks_who_is_trusted(tmp_path: Path) -> None:
    plain = HaRules()
    assert (plain.server_tls(), plain.client_tls()) == (None, None)
    with pytest.raises(UsageError, match="haTlsCertFile has to be set"):
        HaRules(tls=True).server_tls()
    with pytest.raises(UsageError, match="haTlsTrustFile has to be set on a slave"):
        HaRules(tls=True).client_tls()
    # Its own authority.
    cert, key = certificate(tmp_path)
    master = HaRules(tls=True, tls_cert=cert, tls_key=key).server_tls()
    assert master is not None
    assert (master.verify_mode, master.check_hostname) == (ssl.CERT_NONE, False)
    both = HaRules(tls=True, tls_cert=cert, tls_key=key, tls_trust=cert)
    for context in (both.server_tls(), both.client_tls()):
        assert context is not None
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert HaRules(tls=True, tls_trust=cert).client_tls() is not None
    for broken in (
        HaRules(tls=True, tls_cert=str(tmp_path / "none"), tls_key=key),
        HaRules(tls=True, tls_cert=key, tls_key=key),
    ):
        with pytest.raises(UsageError, match="the TLS files of the pair cannot be used"):
            broken.server_tls()

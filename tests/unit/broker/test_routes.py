"""Every request code is served, or declined with a reason."""

from __future__ import annotations

from roquet.broker.app import build, explain
from roquet.broker.config import load_config
from roquet.broker.network.routes import DECLINED
from roquet.protocol.codes import RequestCode
from roquet.remoting.router import Ports


def served(ports: Ports) -> set[RequestCode]:
    config, _ = load_config(None, {}, {})
    return {code for route in build(config).routes if ports in route.ports for code in route.codes}


def test_each_code_is_served_or_declined() -> None:
    known = served(Ports.MAIN)
    assert known | set(DECLINED) == set(RequestCode)
    assert not known & set(DECLINED)


def test_the_fast_port_serves_all_but_reads() -> None:
    assert served(Ports.MAIN) - served(Ports.FAST) == {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.GET_SUMS,
        RequestCode.POP_MESSAGE,
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }


def test_the_table_can_be_printed() -> None:
    config, _ = load_config(None, {}, {})
    text = explain(config)
    assert "registration" in text
    assert "SEND_MESSAGE_V2" in text

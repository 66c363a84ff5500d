"""The list of name servers from a web page: what is read, what is refused, who uses it."""

from __future__ import annotations

import http.server
import threading
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

import roquet
from remoting_harness import on_loop, until
from roquet.base.config import load
from roquet.base.errors import Unreachable, UsageError
from roquet.broker.app import build, explain
from roquet.broker.config import load_config
from roquet.service.http.address_server import AddressLookup, AddressServerConfig, read_page
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import TINY, running_name_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Page:
    """A web server with one page."""

    def __init__(self) -> None:
        self.text = b""
        self.status = 200
        self.asked: list[str] = []
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.asked.append(self.path)
                self.send_response(page.status)
                self.send_header("Content-Length", str(len(page.text)))
                self.end_headers()
                self.wfile.write(page.text)

            @override
            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}/rocketmq/nsaddr"


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"10.0.0.1:9876", ("10.0.0.1:9876",)),
        (b" 10.0.0.1:9876;10.0.0.2:9876 \r\nmore\n", ("10.0.0.1:9876", "10.0.0.2:9876")),
        (b"a.example:1;a.example:1", ("a.example:1",)),
    ],
)
def test_the_first_line_of_the_page_counts(text: bytes, found: tuple[str, ...]) -> None:
    assert read_page(text) == found


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"<html>", b"a", b"a:99999", b"\xff\xfe", b"h:1;" * 200]
)
def test_a_page_without_a_list_is_refused(text: bytes) -> None:
    with pytest.raises(Unreachable):
        read_page(text)


@on_loop
async def test_what_cannot_be_had_or_read_leaves_the_list_as_it_is(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    told: list[tuple[str, ...]] = []
    lookup = AddressLookup(page.url, told.append, clock)
    page.text = b"h1:1;h2:2"
    await lookup.look()
    await lookup.look()
    assert told == [("h1:1", "h2:2")]
    for page.text, page.status in ((b"h3:3", 404), (b"<html>", 200), (b"x" * 70_000, 200)):
        await lookup.look()
    assert len(told) == 1
    assert len([r for r in caplog.records if "address server" in r.getMessage()]) == 1
    page.text, page.status = b"h3:3", 200
    await lookup.look()
    assert told[1:] == [("h3:3",)]
    assert set(page.asked) == {"/rocketmq/nsaddr"}
    gone = AddressLookup("http://127.0.0.1:1/x", told.append, clock)
    await gone.look()
    assert len(told) == 2


def test_the_page_is_where_java_looks() -> None:
    given = {"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": "a.example"}
    rules, _ = load(AddressServerConfig, given)
    assert rules.url == "http://a.example:8080/rocketmq/nsaddr"
    more = {"rmqAddressServerDomain": "a.example:80", "rmqAddressServerSubGroup": "nsaddr-b"}
    rules, _ = load(AddressServerConfig, {**given, **more})
    assert rules.url == "http://a.example:80/rocketmq/nsaddr-b"
    with pytest.raises(UsageError, match="needs rmqAddressServerDomain"):
        load_config(None, {}, {"fetchNamesrvAddrByAddressServer": True})
    for url in ("ftp://a", "http://", "http://a b", "http://a:99999", "http://a\n"):
        with pytest.raises(UsageError, match="is no address server"):
            AddressLookup.check(url)


@on_loop
async def test_a_broker_and_a_client_find_the_name_server_by_the_page(
    page: Page, tmp_path: Path
) -> None:
    clock = FakeClock()
    async with running_name_server(tmp_path / "ns") as name_server:
        page.text = f"127.0.0.1:{name_server.server.port}".encode()
        flags: dict[str, str | int | bool | None] = {
            **TINY,
            "brokerName": "looked-up",
            "fetchNamesrvAddrByAddressServer": True,
            "rmqAddressServerDomain": page.host,
            "storePathRootDir": str(tmp_path / "store"),
            "storePathCommitLog": str(tmp_path / "store" / "commitlog"),
        }
        config, _ = load_config(None, {}, flags)
        assert "look up name servers every 120s" in explain(config, "parts")
        broker = build(config, clock)
        async with broker.app:
            assert page.asked == []
            await clock.advance(10)
            await until(lambda: bool(name_server.table.live), 20)
            async with roquet.connect(page.url) as mq:
                cluster = await mq.admin().brokers.cluster()
                assert list(cluster.brokers) == ["looked-up"]


@on_loop
async def test_a_client_goes_on_when_the_page_moves_its_name_server(
    page: Page, tmp_path: Path
) -> None:
    async with running_name_server(tmp_path / "one") as one:
        page.text = b"127.0.0.1:1"
        mq = roquet.connect(page.url)
        async with mq:
            with pytest.raises(Unreachable):
                await mq.admin().brokers.cluster()
            page.text = f"127.0.0.1:{one.server.port}".encode()
            lookup = mq._session._lookup
            assert lookup is not None
            await lookup.look()
            assert (await mq.admin().brokers.cluster()).brokers == {}

"""The address server: a web page that has the list of name servers, as RocketMQ's clients read it.

The page is one line, `host:port;host:port`. It is looked at ten seconds after the start and then
every two minutes; a page that cannot be had or read leaves the list as it is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import urllib.parse
from typing import TYPE_CHECKING

from roquet.base.config import setting
from roquet.base.errors import Unreachable, UsageError
from roquet.protocol.hosts import split_addresses
from roquet.service.ratelog import RateLog, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock

log = logging.getLogger(__name__)

FIRST_S = 10.0
EVERY_S = 120.0
TIMEOUT_S = 3.0
PAGE_SIZE_MAX = 64 * 1024
ADDRESSES_MAX = 100
_PORT = 8080


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AddressServerConfig:
    """Whether and where the list of name servers is looked up when none is configured."""

    enabled: bool = setting(
        "fetchNamesrvAddrByAddressServer",
        False,
        "Whether name servers are looked up on an address server when namesrvAddr is not set.",
    )
    domain: str = setting(
        "rmqAddressServerDomain", "", "Host of the address server, or host:port (8080)."
    )
    group: str = setting("rmqAddressServerSubGroup", "nsaddr", "Last part of the page's path.")

    @property
    def url(self) -> str:
        """The page. Raises UsageError when no host was given."""
        if not self.domain:
            raise UsageError(
                "fetchNamesrvAddrByAddressServer = 'true' needs rmqAddressServerDomain,"
                " such as addresses.example.org"
            )
        host = self.domain if ":" in self.domain else f"{self.domain}:{_PORT}"
        return f"http://{host}/rocketmq/{urllib.parse.quote(self.group)}"


class AddressLookup:
    """Keeps a list of name servers current. A service; a timer calls `look`."""

    def __init__(self, url: str, use: Callable[[tuple[str, ...]], None], clock: Clock) -> None:
        """Tell `use` of each new list. Raises UsageError for a bad URL."""
        self._parts = self.check(url)
        self._url = url
        self._use = use
        self._log = RateLog(log, clock, every_s=600)
        self._known: tuple[str, ...] = ()

    @staticmethod
    def check(url: str) -> urllib.parse.SplitResult:
        """Return the parts of a URL. Raises UsageError."""
        try:
            parts = urllib.parse.urlsplit(url)
            good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            parts, good = urllib.parse.urlsplit(""), False
        if not good or not url.isprintable() or " " in url:
            raise UsageError(f"{url[:200]!r} is no address server, as in http://host:8080/path")
        return parts

    async def start(self) -> None:
        """Nothing to do: a timer calls `look`."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def look(self) -> None:
        """Ask for the page and use what it says: the action of a timer."""
        try:
            found = read_page(await asyncio.to_thread(self._page))
        except Unreachable as error:
            self._log.warning("page", f"address server {self._url}: {error}")
            return
        if found != self._known:
            self._known = found
            log.info("name servers from %s: %s", self._url, ";".join(found))
            self._use(found)

    def _page(self) -> bytes:
        # A start would take a hundredth of a second longer with this, which few brokers need.
        import http.client  # noqa: PLC0415

        parts = self._parts
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
            try:
                path = parts.path or "/"
                connection.request("GET", f"{path}?{parts.query}" if parts.query else path)
                answer = connection.getresponse()
                page = answer.read(PAGE_SIZE_MAX + 1)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(str(error) or type(error).__name__) from error
        if answer.status != 200:
            raise Unreachable(f"status {answer.status}")
        if len(page) > PAGE_SIZE_MAX:
            raise Unreachable(f"a page of more than {PAGE_SIZE_MAX} bytes")
        return page


def read_page(page: bytes) -> tuple[str, ...]:
    """Return the addresses of the first line. Raises Unreachable when there are none."""
    line = page.decode("utf-8", "replace").strip().partition("\n")[0].strip()
    try:
        found = split_addresses(line)
    except ValueError as error:
        raise Unreachable(f"no list of addresses: {one_line(str(error))}") from error
    if not found or len(found) > ADDRESSES_MAX:
        raise Unreachable(f"{len(found)} addresses; 1 to {ADDRESSES_MAX} are expected")
    return tuple(dict.fromkeys(found))

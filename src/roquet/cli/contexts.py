"""Named clusters: a file of the user's own, which nobody else may read.

What decides which cluster a command talks to, the first that says something: `--namesrv`,
`--context`, $NAMESRV_ADDR, the context in use, 127.0.0.1:9876. A context's account signs only for
the context's own name servers.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from roquet.base.errors import NotFound, UsageError
from roquet.protocol.hosts import split_name_servers

if TYPE_CHECKING:
    from roquet.acl.credentials import Credentials
    from roquet.remoting.tls import TlsOptions

NAMESRV = "127.0.0.1:9876"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SIZE_MAX = 1 << 20
_CONTEXTS_MAX = 1000
_SECRET_MAX = 4096
_TEXTS = ("access_key", "secret_key", "ca", "cert", "key")


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """One cluster. `repr` shows no secret."""

    namesrv: str
    access_key: str | None = None
    secret_key: str | None = dataclasses.field(default=None, repr=False)
    tls: bool = False
    """Whether connections use TLS; without it the environment says so, and how."""
    ca: str | None = None
    """PEM file of who signs the servers' certificates; the system's list without one."""
    cert: str | None = None
    """PEM file of the certificate to show to servers that ask for one."""
    key: str | None = None
    """PEM file of its private key, where that is another one."""

    def secured(self) -> TlsOptions | None:
        """Return how connections are secured, None to leave that to the environment."""
        if not self.tls:
            return None
        from roquet.remoting.tls import TlsOptions  # noqa: PLC0415  (few use it)

        return TlsOptions(ca=self.ca or "", cert=self.cert or "", key=self.key or "")

    def credentials(self) -> Credentials | None:
        """Return what signs requests, None to leave that to the environment."""
        if self.access_key is None or self.secret_key is None:
            return None
        from roquet.acl.credentials import Credentials  # noqa: PLC0415  (few have an account)

        return Credentials(self.access_key, self.secret_key)


@dataclasses.dataclass(slots=True)
class Contexts:
    """What the file has."""

    clusters: dict[str, Context]
    in_use: str | None = None


def path() -> Path:
    """Return where the file is: $ROQUET_CONTEXTS, or below the user's configuration folder."""
    given = os.environ.get("ROQUET_CONTEXTS")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "roquet" / "contexts.json"


def load() -> Contexts:
    """Read the file; nothing where there is none. Raises UsageError for one that is damaged."""
    file = path()
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            text = opened.read(_SIZE_MAX + 1)
    except FileNotFoundError:
        return Contexts({})
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    if mode & 0o077:
        raise UsageError(f"{file} may be read by others: chmod 600 {file}")
    try:
        return _read(json.loads(text[:_SIZE_MAX]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(f"{file} is no file of contexts: {error}") from error


def _read(source: Any) -> Contexts:
    rows = cast("dict[str, dict[str, Any]]", source["contexts"])
    found: dict[str, Context] = {}
    for name, row in rows.items():
        if not isinstance(cast("object", row), dict):
            raise TypeError(f"{name[:64]!r} is no object")
        namesrv = row["namesrv"]
        texts = {it: row.get(it) for it in _TEXTS}
        if not all(it is None or isinstance(it, str) for it in (namesrv, *texts.values())):
            raise ValueError(f"{name[:64]!r} has values that are no texts")
        tls = row.get("tls", False)
        if not isinstance(tls, bool):
            raise TypeError(f"tls of {name[:64]!r} is neither true nor false")
        found[name] = Context(namesrv, tls=tls, **texts)
    used = source.get("in_use")
    return Contexts(found, used if isinstance(used, str) and used in found else None)


def save(contexts: Contexts) -> None:
    """Write the file, readable by its owner alone, whole or not at all. Raises UsageError."""
    if len(contexts.clusters) > _CONTEXTS_MAX:
        raise UsageError(f"there are at most {_CONTEXTS_MAX} contexts")
    file = path()
    rows = {name: dataclasses.asdict(it) for name, it in sorted(contexts.clusters.items())}
    text = json.dumps({"in_use": contexts.in_use, "contexts": rows}, indent=2) + "\n"
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be written: {error}") from error


def check_name(name: str) -> str:
    """Return a name that a context may have. Raises UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:80]!r}: a name has 1 to 64 letters, digits, '_', '-' and '.'")
    return name


def addresses_of(text: str, flag: str) -> tuple[str, ...]:
    """Return the name servers of a text like `host:port;host`. Raises UsageError."""
    try:
        found = split_name_servers(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error
    if not found:
        raise UsageError(f"{flag} is empty: it should look like 127.0.0.1:9876")
    return found


def chosen(namesrv: str | None, name: str | None) -> Context:
    """Return the cluster that a command talks to. Raises UsageError, NotFound."""
    if namesrv is not None:
        if name is not None:
            raise UsageError("give --namesrv or --context, not both")
        return Context(namesrv)
    if name is None and os.environ.get("NAMESRV_ADDR"):
        return Context(os.environ["NAMESRV_ADDR"])
    known = load()
    name = known.in_use if name is None else name
    if name is None:
        return Context(NAMESRV)
    if name not in known.clusters:
        raise NotFound(f"there is no context {name[:64]!r}; try: roquet context ls")
    return known.clusters[name]


def secret_of(name: str, flag: str = "--secret-file") -> str:
    """Return the first line of a file, - for the input. Raises UsageError that names `flag`."""
    try:
        with open(0 if name == "-" else Path(name), "rb", closefd=name != "-") as opened:
            line = opened.readline(_SECRET_MAX)
        return line.decode().strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag}: it cannot be read: {error}") from error

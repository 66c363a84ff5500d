"""The calling side: an access key and its secret, and where they come from."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.acl.signature import sign
from roquet.base.errors import UsageError
from roquet.base.properties_file import read_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.protocol.command import Command

KEY_VARIABLE = "ROQUET_ACCESS_KEY"
SECRET_VARIABLE = "ROQUET_SECRET_KEY"  # noqa: S105  (the name of a variable)
TOKEN_VARIABLE = "ROQUET_SECURITY_TOKEN"  # noqa: S105
FILE_VARIABLE = "ROQUET_CREDENTIALS_FILE"
VARIABLES = (KEY_VARIABLE, SECRET_VARIABLE, TOKEN_VARIABLE, FILE_VARIABLE)
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""What credentials of one cluster among several may be called."""
LENGTH_MAX = 4096
FILE_SIZE_MAX = 64 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """What requests are signed with. No text that is made of it has the secret."""

    access_key: str
    secret_key: str = dataclasses.field(repr=False)
    security_token: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        """Raise UsageError for keys that cannot be used."""
        for text in (self.access_key, self.secret_key, self.security_token):
            if len(text) > LENGTH_MAX or not text.isprintable():
                raise UsageError(f"keys are printable texts of at most {LENGTH_MAX} characters")
        if not self.access_key or not self.secret_key:
            raise UsageError("credentials need both an access key and a secret key")

    def sign(self, command: Command) -> Command:
        """Return the request signed; the one given stays as it is."""
        return sign(command, self.access_key, self.secret_key.encode(), self.security_token)


def from_file(path: Path, *, warn: Callable[[str], None] | None = None) -> Credentials:
    """Read `accessKey` and `secretKey` (`accessKey=…` or, as in Java's tools.yml, `accessKey: …`).

    Raises UsageError, also when others may read the file, unless `warn` takes that as a line.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        what = f"{path} may be read by others: it needs chmod 600"
        if warn is None:
            raise UsageError(what)
        warn(what)
    if len(data) > FILE_SIZE_MAX:
        raise UsageError(f"{path} is larger than {FILE_SIZE_MAX} bytes")
    found = {key: text.strip("\"'") for key, text in read_properties(data).items()}
    try:
        token = found.get("securityToken", "")
        return Credentials(found["accessKey"], found["secretKey"], token)
    except KeyError as error:
        raise UsageError(f"{path} has no {error.args[0]}") from None


def from_environment(env: Mapping[str, str], name: str | None = None) -> Credentials | None:
    """Return what ROQUET_ACCESS_KEY and ROQUET_SECRET_KEY, or ROQUET_CREDENTIALS_FILE, say.

    With a `name` the same variables with `_NAME` behind them, in capitals and with `_` for `-`, so
    that one process has keys of several clusters.

    None when neither is set and there is no name. Raises UsageError when only half is, and for a
    name without credentials.
    """
    end = "" if name is None else _ending(name)
    key, secret = env.get(KEY_VARIABLE + end), env.get(SECRET_VARIABLE + end)
    if key and secret:
        return Credentials(key, secret, env.get(TOKEN_VARIABLE + end, ""))
    if key or secret:
        raise UsageError(f"{KEY_VARIABLE}{end} and {SECRET_VARIABLE}{end} have to be set together")
    file = env.get(FILE_VARIABLE + end)
    if file:
        return from_file(Path(file).expanduser())
    if end:
        raise UsageError(
            f"there are no credentials {name!r}: set {KEY_VARIABLE}{end} and"
            f" {SECRET_VARIABLE}{end}, or {FILE_VARIABLE}{end}, in the environment of this process"
        )
    return None


def variables(env: Mapping[str, str]) -> frozenset[str]:
    """Return the variables of an environment that are about credentials, with a name or without."""
    named = tuple(f"{it}_" for it in VARIABLES)
    return frozenset({*VARIABLES, *(it for it in env if it.startswith(named))})


def check_name(name: str) -> None:
    """Raise UsageError for what cannot be a name; the text does not repeat it, it may be a key."""
    if NAME.fullmatch(name) is None:
        raise UsageError(
            "credentials: a name has letters, digits, - and _, begins with a letter and is no"
            " longer than 64; keys themselves are in the environment"
        )


def _ending(name: str) -> str:
    check_name(name)
    return "_" + name.upper().replace("-", "_")

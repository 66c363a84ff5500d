"""Accounts of the console: a file of names, roles and scrypt hashes of passwords.

    [ana]
    role = "operator"
    password = "scrypt:..."

A line for `password` is what `roquet console --hash-password` prints.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Any, cast

from roquet.base.errors import UsageError
from roquet.console import private_toml
from roquet.console.roles import Role, role_of

if TYPE_CHECKING:
    from pathlib import Path

_COST, _BLOCK, _LANES = 2**14, 8, 1
_SALT, _KEY = 16, 32
_SIZE_MAX = 1 << 20
_PASSWORD_MIN, PASSWORD_MAX = 8, 256
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_HASH = re.compile(r"scrypt:([A-Za-z0-9+/=]{24}):([A-Za-z0-9+/=]{44})")


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """Somebody who may sign in. `repr` shows no hash."""

    role: Role
    salt: bytes = dataclasses.field(repr=False)
    key: bytes = dataclasses.field(repr=False)


def hash_password(password: str) -> str:
    """Return what the file has for a password. Raises UsageError for one that is too short."""
    if not _PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise UsageError(f"a password has {_PASSWORD_MIN} to {PASSWORD_MAX} characters")
    salt = secrets.token_bytes(_SALT)
    key = _scrypt(password, salt)
    return f"scrypt:{base64.b64encode(salt).decode()}:{base64.b64encode(key).decode()}"


class Accounts:
    """The accounts of a file; of none, when there is no file."""

    def __init__(self, accounts: dict[str, Account]) -> None:
        """Know these."""
        self._accounts = accounts
        self._nobody = Account(Role.VIEWER, secrets.token_bytes(_SALT), secrets.token_bytes(_KEY))
        self._one_at_a_time = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._accounts)

    async def check(self, name: str, password: str) -> Role | None:
        """Return the role of a name whose password it is. An unknown name takes as long."""
        account = self._accounts.get(name, self._nobody)
        if len(password) > PASSWORD_MAX:
            return None
        async with self._one_at_a_time:
            key = await asyncio.to_thread(_scrypt, password, account.salt)
        return account.role if hmac.compare_digest(key, account.key) else None


def load(file: Path, count_max: int) -> Accounts:
    """Read the file. Raises UsageError."""
    source = private_toml.read(f"--users {file}", file, _SIZE_MAX)
    if len(source) > count_max:
        raise UsageError(f"--users {file} has more than {count_max} accounts")
    return Accounts({name: _account(file, name, row) for name, row in source.items()})


def _account(file: Path, name: str, row: Any) -> Account:
    where = f"--users {file}: {name[:64]!r}"
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where} is no name: letters, digits, '_', '.', '@' and '-'")
    given: dict[str, Any] = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    if set(given) != {"role", "password"}:
        raise UsageError(f"{where} needs a role and a password, and nothing else")
    found = _HASH.fullmatch(str(given["password"]))
    if found is None:
        raise UsageError(f"{where}: its password is none of: roquet console --hash-password")
    try:
        salt, key = (base64.b64decode(part, validate=True) for part in found.groups())
    except binascii.Error as error:
        raise UsageError(f"{where}: its password is damaged: {error}") from error
    return Account(role_of(str(given["role"])), salt, key)


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password.encode(errors="surrogateescape"),
        salt=salt,
        n=_COST,
        r=_BLOCK,
        p=_LANES,
        dklen=_KEY,
    )

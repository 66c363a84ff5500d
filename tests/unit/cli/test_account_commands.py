"""`roquet user` and `roquet acl` with accounts of 4.x, against servers that ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli_harness import cluster_of
from cli_shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRETS = {"operator": "canary-of-operator", "annabel": "canary-of-ann"}


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Shell]]:
    """Start servers with one account; give what makes a shell of somebody, nobody for ''."""
    accounts = tmp_path / "plain_acl.yml"
    account = f"- accessKey: operator\n  secretKey: {SECRETS['operator']}\n  admin: true\n"
    accounts.write_text(f"accounts:\n{account}")
    accounts.chmod(0o600)
    acl = {"aclEnable": "true", "rocketmq.acl.plain.file": str(accounts)}
    with cluster_of(tmp_path, **acl) as address:

        def shell_of(name: str) -> Shell:
            for variable, value in (("ACCESS", name), ("SECRET", SECRETS.get(name))):
                if value:
                    monkeypatch.setenv(f"ROQUET_{variable}_KEY", value)
                else:
                    monkeypatch.delenv(f"ROQUET_{variable}_KEY", raising=False)
            return Shell(address)

        yield shell_of


def test_accounts_are_made_used_and_deleted_while_access_control_is_on(
    people: Callable[[str], Shell], tmp_path: Path
) -> None:
    nobody = people("")
    nobody("user", "ls")
    assert (nobody.code, "the cluster asks for an account" in nobody.err) == (1, True), nobody.err
    operator = people("operator")
    operator("topic", "create", "orders")
    assert operator.code == 0, operator.err
    secret = tmp_path / "secret"
    secret.write_text(SECRETS["annabel"] + "\n")
    made = ("user", "set", "annabel", "--secret-file", str(secret), "--topic", "orders=SUB")
    operator(*made)
    assert (operator.code, "--yes does it" in operator.err) == (2, True), operator.err
    operator(*made, "-y")
    assert operator.code == 0, operator.err
    rows = {it["user"]: it for it in operator.rows("user", "ls")}
    assert (rows["annabel"]["admin"], rows["annabel"]["of_topics"]) == (False, "orders=SUB")
    assert rows["operator"]["admin"] is True

    ann = people("annabel")
    ann("pub", "orders", "x")
    assert (ann.code, "an administrator has to grant it" in ann.err) == (1, True), ann.err
    ann("user", "set", "annabel", "--admin", "-y")
    assert (ann.code, set(rows)) == (1, {"annabel", "operator"}), ann.err
    operator = people("operator")
    # As with RocketMQ, a change says the secret again.
    change = ("user", "set", "annabel", "--topic", "orders=PUB|SUB", "-y")
    operator(*change)
    assert (operator.code, "code 209" in operator.err) == (1, True), operator.err
    operator(*change, "--secret-file", str(secret))
    assert operator.code == 0, operator.err
    ann = people("annabel")
    ann("pub", "orders", "x")
    assert ann.code == 0, ann.err

    operator = people("operator")
    operator("user", "rm", "annabel", "-y")
    assert operator.code == 0, operator.err
    assert [it["user"] for it in operator.rows("user", "ls")] == ["operator"]
    ann = people("annabel")
    ann("pub", "orders", "x")
    assert (ann.code, "the access key or its secret is wrong" in ann.err) == (1, True), ann.err
    assert "canary" not in ann.err


def test_addresses_that_need_no_account_are_replaced(people: Callable[[str], Shell]) -> None:
    operator = people("operator")
    operator("acl", "allow", "127.0.0.1", "-y")
    assert operator.code == 0, operator.err
    nobody = people("")
    assert [it["user"] for it in nobody.rows("user", "ls")] == ["operator"]
    operator = people("operator")
    operator("acl", "allow", "-y")
    assert operator.code == 0, operator.err
    nobody = people("")
    nobody("user", "ls")
    assert nobody.code == 1

"""Write the blocking client from the asyncio one, but for what a thread does otherwise.

`python -m tools.sync_client` writes the folder `src/roquet/client/_sync_client`; a test compares.
What is left out here stands in the subclasses of the folder `_sync`: loops over messages, futures,
and what takes or gives another wrapper.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

from tools.sync_admin import formatted, imports_of, method_of, names_of, own_names_of

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/roquet/client"
TARGET = SOURCE / "_sync_client"


class Form(NamedTuple):
    """A class of the asyncio client and what becomes of it."""

    module: str
    """Below `roquet.client`."""
    name: str
    left_out: frozenset[str] = frozenset()
    """Methods that have no blocking form, or one of their own."""
    is_still: bool = False
    """Whether properties never change: other threads may read them."""


# What brokers ask of a consumer, and what it asks of its parts, is for nobody else.
_INNER = ("describe", "reset_offsets", "progress", "running_info", "consume_directly")
FORMS = {
    "producer.py": Form(
        "_sending.producer",
        "Producer",
        frozenset(
            {
                *("send", "submit", "send_one_way", "reply", "send_encoded"),
                *("delivery", "composed", "ready", "prepared", "accept", "hasten", "note"),
            },
        ),
    ),
    "transactions.py": Form("_sending.transactions", "Transaction"),
    "consumer.py": Form(
        "_consuming.push_consumer",
        "Consumer",
        frozenset(
            {"receive", "ready", "receive_many", "run", "run_batches", "rebalance_soon", *_INNER}
        ),
    ),
    "pull_consumer.py": Form("_consuming.pull_consumer", "PullConsumer", frozenset({"describe"})),
    "simple_consumer.py": Form(
        "_popping.simple_consumer", "SimpleConsumer", frozenset({"rebalance_soon", *_INNER})
    ),
    "received.py": Form(
        "_received",
        "Received",
        frozenset({"process", "watch", "ack", "retry", "dead_letter", "is_settled"}),
        is_still=True,
    ),
}
_HEAD = '''\
"""Blocking form of {name}: written by `python -m tools.sync_client`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

{imports}

if TYPE_CHECKING:
    {typing_imports}
    from {package} import {module}
    from roquet.service.loop_thread import LoopThread


class {name}:
    """{doc}"""

    def __init__(self, inner: {module}.{name}, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop
'''
_CONTEXT = '''
    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
'''


def main() -> int:
    """Write the modules; return the exit code."""
    TARGET.mkdir(exist_ok=True)
    for name, text in written().items():
        (TARGET / name).write_text(formatted(text), encoding="utf-8")
    return 0


def written() -> dict[str, str]:
    """Return file name -> text, unformatted and with imports that are too many."""
    about = '"""The blocking client, as far as it is written by `python -m tools.sync_client`."""\n'
    return {"__init__.py": about, **{name: _module(form) for name, form in FORMS.items()}}


def _module(form: Form) -> str:
    package, _, module = f"roquet.client.{form.module}".rpartition(".")
    path = SOURCE.joinpath(*form.module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (source,) = [it for it in tree.body if isinstance(it, ast.ClassDef) and it.name == form.name]
    methods = [
        it
        for it in source.body
        if isinstance(it, ast.AsyncFunctionDef | ast.FunctionDef)
        and it.name[0] != "_"
        and it.name not in form.left_out
    ]
    names: set[str] = set().union(*map(names_of, methods))
    runtime: set[str] = set()
    typed: set[str] = set()
    imports_of(tree, names, runtime, typed)
    own_names_of(tree, f"{package}.{module}", names - {form.name}, runtime, typed)
    head = _HEAD.format(
        name=form.name,
        package=package,
        module=module,
        doc=f"{(ast.get_docstring(source) or '').partition('.')[0]}, blocking.",
        imports="\n".join(sorted(runtime)),
        typing_imports="\n    ".join(sorted(typed)),
    )
    starts = {"start", "close"} <= {it.name for it in methods}
    bodies = [method_of(it, is_still=form.is_still, is_threaded=True) for it in methods]
    return head + (_CONTEXT if starts else "") + "\n".join(bodies) + "\n"


if __name__ == "__main__":
    sys.exit(main())

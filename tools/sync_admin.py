"""Write the blocking form of administration from the asyncio one.

`python -m tools.sync_admin` writes the folder `src/roquet/client/_sync_admin`; a test compares.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/roquet/admin"
TARGET = ROOT / "src/roquet/client/_sync_admin"
FAMILIES = ("topics", "groups", "messages", "brokers", "name_servers", "accounts")

_HEAD = '''\
"""Blocking administration of {subject}: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

{imports}

if TYPE_CHECKING:
    {typing_imports}
    from roquet import admin
    from roquet.service.loop_thread import LoopThread

'''
_ADMIN = '''\
"""Administration by the blocking client: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

{imports}

if TYPE_CHECKING:
    from roquet import admin
    from roquet.service.loop_thread import LoopThread

__all__ = [{names}]


class Admin:
    """The families of administration, blocking."""

    def __init__(self, inner: admin.Admin, loop: LoopThread) -> None:
        """Wrap."""
{families}
'''


def main() -> int:
    """Write the modules; return the exit code."""
    TARGET.mkdir(exist_ok=True)
    for name, text in written().items():
        (TARGET / name).write_text(formatted(text), encoding="utf-8")
    return 0


def written() -> dict[str, str]:
    """Return file name -> text, unformatted and with imports that are too many."""
    found = {f"{family}.py": _module(family) for family in FAMILIES}
    rows = "\n".join(
        f"        self.{it}: {_class_name(it)} = {_class_name(it)}(inner.{it}, loop)"
        for it in FAMILIES
    )
    imports = "\n".join(
        f"from roquet.client._sync_admin.{it} import {_class_name(it)}" for it in sorted(FAMILIES)
    )
    names = ", ".join(f'"{it}"' for it in sorted(["Admin", *map(_class_name, FAMILIES)]))
    return {"__init__.py": _ADMIN.format(families=rows, imports=imports, names=names), **found}


def _module(family: str) -> str:
    runtime: set[str] = set()
    typed = {"from collections.abc import Generator"}
    tree = ast.parse((SOURCE / f"{family}.py").read_text(encoding="utf-8"))
    text, names = _family(tree, family)
    imports_of(tree, names, runtime, typed)
    own_names_of(tree, f"roquet.admin.{family}", names - {_class_name(family)}, runtime, typed)
    head = _HEAD.format(
        subject=family.replace("_", " "),
        imports="\n".join(sorted(runtime)),
        typing_imports="\n    ".join(sorted(typed)),
    )
    return head + text


def formatted(text: str) -> str:
    """Return it as ruff formats it, without imports that nothing needs."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    name = ["--stdin-filename", str(TARGET)]
    for step in (["check", "--fix", "-q", "--select", "F401,I,TC"], ["format", "-q"]):
        done = subprocess.run(
            [*ruff, *step, *name, "-"], input=text, capture_output=True, text=True, check=False
        )
        text = done.stdout
    return text


def _family(tree: ast.Module, family: str) -> tuple[str, set[str]]:
    """Return the class of a family, and the names that its signatures use."""
    (source,) = [
        it for it in tree.body if isinstance(it, ast.ClassDef) and it.name == _class_name(family)
    ]
    lines = [
        f"\nclass {source.name}:",
        f'    """{ast.get_docstring(source)}"""',
        f"\n    def __init__(self, inner: admin.{source.name}, loop: LoopThread) -> None:",
        '        """Wrap."""',
        "        self._inner = inner",
        "        self._loop = loop",
    ]
    names: set[str] = set()
    for method in source.body:
        if isinstance(method, ast.AsyncFunctionDef | ast.FunctionDef) and method.name[0] != "_":
            lines.append(method_of(method))
            names |= names_of(method)
    return "\n".join(lines) + "\n", names


def names_of(method: ast.AsyncFunctionDef | ast.FunctionDef) -> set[str]:
    """Return the names that a method's signature uses."""
    nodes = [*ast.walk(method.args), *([method.returns] if method.returns else [])]
    return {it.id for node in nodes for it in ast.walk(node) if isinstance(it, ast.Name)}


def method_of(
    method: ast.AsyncFunctionDef | ast.FunctionDef,
    *,
    is_still: bool = True,
    is_threaded: bool = False,
) -> str:
    """Return the blocking form of a method.

    A property `is_still` when any thread may read it. With `is_threaded`, what is no coroutine is
    called on the loop's thread.
    """
    doc = ast.get_docstring(method, clean=False) or ""
    returns = "None" if method.returns is None else ast.unparse(method.returns)
    given = [it.arg for it in method.args.args[1:]]
    given += [f"{it.arg}={it.arg}" for it in method.args.kwonlyargs]
    called = f"self._inner.{method.name}({', '.join(given)})"
    decorator = ""
    if isinstance(method, ast.AsyncFunctionDef):
        if returns.startswith("AsyncGenerator["):
            returns = returns.removeprefix("Async")
            call = f"yield from self._loop.iterate({called})"
        else:
            call = f"{'' if returns == 'None' else 'return '}self._loop.run({called})"
    elif method.decorator_list or not is_threaded:
        decorator = "    @property\n"
        read = f"self._inner.{method.name}"
        call = f"return {read if is_still else f'self._loop.call(lambda: {read})'}"
    else:
        once = f"lambda: {called}" if given else f"self._inner.{method.name}"
        call = f"{'' if returns == 'None' else 'return '}self._loop.call({once})"
    return (
        f"\n{decorator}    def {method.name}({ast.unparse(method.args)}) -> {returns}:\n"
        f'        """{doc}"""\n        {call}'
    )


def imports_of(tree: ast.Module, names: set[str], runtime: set[str], typed: set[str]) -> None:
    """Add the imports of the names; constants of defaults are needed when the module runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) in names:
                    line = f"from {node.module} import {alias.name}"
                    (runtime if alias.name.isupper() else typed).add(line)


def own_names_of(
    tree: ast.Module, module: str, names: set[str], runtime: set[str], typed: set[str]
) -> None:
    """Add what the source's module defines itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found = [node.name]
        elif isinstance(node, ast.Assign):
            found = [it.id for it in node.targets if isinstance(it, ast.Name)]
        else:
            continue
        for name in names.intersection(found):
            line = f"from {module} import {name}"
            (runtime if name.isupper() else typed).add(line)


def _class_name(family: str) -> str:
    return "".join(part.title() for part in family.split("_"))


if __name__ == "__main__":
    sys.exit(main())

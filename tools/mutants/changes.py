"""The changes that can be made to a module: one operator, constant, call or return each.

A change replaces the text of one node of the syntax tree. Nothing is changed that is not a rule:
annotations, docstrings, log lines, assertions, error texts, protocols, declarations of settings.
"""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_QUIET = ("log.", "self._log.", "logging.", "super().")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Change:
    """One change of a module's text: bytes `begin` to `end` become `after`."""

    path: str
    line: int
    begin: int
    end: int
    scope: str
    kind: str
    before: str
    after: str

    @property
    def key(self) -> str:
        """What names the change however the lines around it move."""
        return f"{self.path} | {self.scope} | {self.kind} | {self.before} => {self.after}"

    def apply(self, source: bytes) -> bytes:
        """Return the module with this change made."""
        return source[: self.begin] + self.after.encode() + source[self.end :]


def changes_of(path: str, source: bytes) -> list[Change]:
    """Return every change that can be made to a module, by place."""
    found: list[Change] = []
    seen: set[tuple[int, int, str]] = set()
    for change in _Finder(path, source).found():
        place = (change.begin, change.end, change.after)
        if place not in seen:
            seen.add(place)
            found.append(change)
    return sorted(found, key=lambda it: (it.begin, it.end, it.after))


class _Finder:
    """Walks the tree of one module."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._tree = ast.parse(source)
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts

    def found(self) -> Iterator[Change]:
        for node in self._tree.body:
            yield from self._visit(node, ())

    def _visit(self, node: ast.AST, scope: tuple[str, ...]) -> Iterator[Change]:
        if _is_no_rule(node):
            return
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*scope, node.name)
            for child in node.body:
                yield from self._visit(child, inner)
            return
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from self._visit(node.value, scope)
            return
        if scope:
            for kind, target, after in _replacements(node):
                if scope[-1] == "__init__" and kind == "remove":
                    # Type checkers know that something is missing then.
                    continue
                yield self._change(target, scope, kind, after)
        for inner_node in ast.iter_child_nodes(node):
            yield from self._visit(inner_node, scope)

    def _change(
        self, node: ast.expr | ast.stmt, scope: tuple[str, ...], kind: str, to: str
    ) -> Change:
        begin = self._place(node.lineno, node.col_offset)
        end = self._place(node.end_lineno or 0, node.end_col_offset or 0)
        before = " ".join(self._source[begin:end].decode().split())
        return Change(self._path, node.lineno, begin, end, ".".join(scope), kind, before[:120], to)

    def _place(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column


def _is_no_rule(node: ast.AST) -> bool:
    """Tell whether nothing below a node is changed."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr():
            found = True
        case ast.ClassDef():
            found = any(ast.unparse(base).startswith("Protocol") for base in node.bases)
        case ast.If():
            found = ast.unparse(node.test) == "TYPE_CHECKING"
        case ast.Subscript(value=ast.Name(id="dict" | "list" | "set" | "tuple" | "frozenset")):
            # A type.
            found = True
        case ast.Delete(targets=targets):
            # Arguments that are not used.
            found = all(isinstance(it, ast.Name) for it in targets)
        case ast.Call():
            found = ast.unparse(node.func) in {"setting", "TypeVar", "getLogger"}
        case (
            ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call))
        ):
            found = ast.unparse(call.func).startswith(_QUIET)
        case ast.Expr():
            found = not isinstance(node.value, ast.Yield | ast.YieldFrom | ast.Await)
        case _:
            found = False
    return found


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield (kind, node to replace, text that takes its place)."""
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node, f"({ast.unparse(node.operand)})"
        case ast.Constant():
            yield from _constant(node)
        case ast.BinOp():
            yield from _calculated(node)
        case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
            yield "swap", node.func, _SWAPPED[name]
        case ast.IfExp() | ast.If() | ast.While():
            if not isinstance(node.test, ast.Compare | ast.UnaryOp | ast.Constant):
                yield "negate", node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.stmt():
            yield from _statement(node)
        case _:
            pass


def _calculated(node: ast.BinOp) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    is_text = isinstance(node.left, ast.JoinedStr) or isinstance(
        getattr(node.left, "value", 0), str
    )
    if type(node.op) in _ARITHMETIC and not is_text:
        op = _ARITHMETIC[type(node.op)]()
        yield "arithmetic", node, f"({ast.unparse(ast.BinOp(node.left, op, node.right))})"


def _compared(node: ast.Compare) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    for at, op in enumerate(node.ops):
        ops = [*node.ops]
        ops[at] = _OPPOSITE[type(op)]()
        yield "compare", node, f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})"
    if isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        yield "negate", node, f"(not ({ast.unparse(node)}))"


def _constant(node: ast.Constant) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    if isinstance(node.value, bool):
        yield "constant", node, str(not node.value)
    elif isinstance(node.value, int):
        yield "constant", node, f"({node.value} + 1)"


def _statement(node: ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    if isinstance(node, ast.Expr | ast.Raise | ast.Break | ast.Continue | ast.Delete):
        yield "remove", node, "pass"
    elif isinstance(node, ast.Return):
        # No rule tells False from None; False is changed to True.
        if node.value is not None and not _is_constant(node.value, None, False):
            yield "return", node, "return None"
    elif isinstance(node, ast.Assign):
        if not any(isinstance(it, ast.Name | ast.Tuple) for it in node.targets):
            yield "remove", node, "pass"
    elif isinstance(node, ast.AugAssign):
        yield "remove", node, "pass"


def _is_constant(node: ast.expr, *values: object) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is it for it in values)

"""The project's own source, parsed once, for tests of its shape."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("src/sbxtui", "guest/sbxguest", "infra/sbxinfra")
EVERYTHING = (*PRODUCT, "tests", "bench", "examples", "screenshots")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One source file. `path` is relative to the repository, with slashes."""

    path: str
    text: str
    tree: ast.Module

    def at(self, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
        """`path:line`, as an editor opens it."""
        return f"{self.path}:{node.lineno}"


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """Every Python file below `folders` (relative to the repository), sorted; a missing folder has none."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    paths = sorted(path for path in found if "node_modules" not in path.parts)
    parsed = tuple(_parse(path) for path in paths)
    # Millions of small objects that stay to the end: every later collection would look through them.
    gc.freeze()
    return parsed


def functions(tree: ast.AST) -> Iterator[FunctionNode]:
    """Every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            yield node


def imported_names(module: Module) -> Iterator[tuple[ast.stmt, str]]:
    """Each imported thing as a dotted name: `from a.b import c` gives `a.b.c`, `import a.b` gives `a.b`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            # Relative imports stay in their own package, which no rule here forbids.
            prefix = "." * node.level + (node.module or "")
            for alias in node.names:
                yield node, f"{prefix}.{alias.name}"


def dotted(node: ast.expr) -> str:
    """`os.environ.get` of such an expression; empty for anything that is not names and dots."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            left = dotted(value)
            return f"{left}.{attr}" if left else ""
        case _:
            return ""


@cache
def _parse(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(path.relative_to(ROOT).as_posix(), text, ast.parse(text, filename=str(path)))

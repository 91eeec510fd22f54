"""Packages say what they are for, and public names say what their types cannot."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.source import EVERYTHING, PRODUCT, FunctionNode, Module, modules

# Called by the framework under these names; textual's own documentation says when.
_TEXTUAL_HANDLERS = (
    "action_",
    "can_replace",
    "check_",
    "compose",
    "get_default_",
    "on_",
    "render",
    "validate_",
    "watch_",
)


def test_every_package_states_its_job() -> None:
    silent = [
        module.path
        for module in modules(*EVERYTHING)
        if module.path.endswith("/__init__.py") and not ast.get_docstring(module.tree)
    ]
    assert not silent, "\n".join(silent)


def test_every_module_states_its_job() -> None:
    silent = [module.path for module in modules(*EVERYTHING) if not ast.get_docstring(module.tree)]
    assert not silent, "\n".join(silent)


def test_every_public_name_has_a_docstring() -> None:
    silent = [
        f"{module.at(node)} {node.name}"
        for module in modules(*PRODUCT)
        for node in _public(module, module.tree)
        if ast.get_docstring(node) is None
    ]
    assert not silent, "\n".join(silent)


def _public(module: Module, parent: ast.Module | ast.ClassDef) -> Iterator[FunctionNode | ast.ClassDef]:
    for node in parent.body:
        if not isinstance(node, FunctionNode | ast.ClassDef) or node.name.startswith("_") or _is_exempt(module, node):
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _public(module, node)


def _is_exempt(module: Module, node: FunctionNode | ast.ClassDef) -> bool:
    if module.path.startswith("src/sbxtui/tui/") and node.name.startswith(_TEXTUAL_HANDLERS):
        return True
    # The getter's docstring, or the implementation's, speaks for these.
    return any(ast.unparse(decorator).endswith((".setter", "overload")) for decorator in node.decorator_list)

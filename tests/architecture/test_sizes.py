"""Files and functions stay small enough to be read at once."""

from __future__ import annotations

import ast

from tests.architecture.source import EVERYTHING, FunctionNode, functions, modules

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    long = {
        module.path: lines
        for module in modules(*EVERYTHING)
        if (lines := len(module.text.splitlines())) > MAX_FILE_LINES
    }
    assert not long, long


def test_no_function_is_longer_than_forty_lines_without_its_docstring() -> None:
    long = {
        f"{module.at(node)} {node.name}": lines
        for module in modules(*EVERYTHING)
        for node in functions(module.tree)
        if (lines := _lines_of(node)) > MAX_FUNCTION_LINES
    }
    assert not long, long


def _lines_of(node: FunctionNode) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines

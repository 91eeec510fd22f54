"""The local cloud with a rule taken out of it, to see whether checks notice.

    python -m tests.localcloud.conformance.mutant FOLDER [options of the local cloud]

Its modules are loaded with every `raise` guarded. FOLDER/removed lists, a line each, what does not happen now: a raise
by its place, or a violated constraint by how its sentence begins; it is read again whenever one is about to happen.
FOLDER/happened gets a line for each that did. FOLDER/edit.json, if it is there, is a text of one module in the place of
another, from the start.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType

_PACKAGE = "sbxtui.localcloud."
_GUARD = "__sbx_happens__"
_VIOLATIONS = ("found = list(violations(shape, value))", f"found = list(filter({_GUARD}, violations(shape, value)))")


class _Guarded(ast.NodeTransformer):
    def __init__(self, module: str) -> None:
        self._module = module

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if node.exc is None:
            return node
        place = ast.Constant(f"{self._module}:{node.lineno};")
        asked = ast.Call(ast.Name(_GUARD, ast.Load()), [place], [])
        return ast.copy_location(ast.If(asked, [node], []), node)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, edit: dict[str, str]) -> None:
        super().__init__(fullname, path)
        self._edit = edit

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname) or ""
        edits = [(self._edit["old"], self._edit["new"])] if self._edit.get("module") == fullname else []
        if fullname == f"{_PACKAGE}shapes":
            edits.append(_VIOLATIONS)
        for old, new in edits:
            if source.count(old) != 1:
                raise AssertionError(f"{fullname} holds {source.count(old)} times: {old}")
            source = source.replace(old, new)
        tree = ast.fix_missing_locations(_Guarded(fullname).visit(ast.parse(source)))
        code = compile(tree, self.get_filename(fullname), "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, edit: dict[str, str]) -> None:
        self._edit = edit

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(_PACKAGE):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, self._edit)
        return spec


def main(folder: Path, argv: Sequence[str]) -> int:
    """Be the local cloud; its exit code."""
    removed, happened, edit_file = folder / "removed", folder / "happened", folder / "edit.json"

    def happens(what: str) -> bool:
        if any(what.startswith(one) for one in removed.read_text().splitlines() if one):
            return False
        with happened.open("a") as file:
            file.write(f"{what}\n")
        return True

    removed.touch()
    setattr(builtins, _GUARD, happens)
    edit = json.loads(edit_file.read_text()) if edit_file.exists() else {}
    sys.meta_path.insert(0, _Finder(edit))
    from sbxtui.localcloud.main import main as serve

    return serve(argv)


if __name__ == "__main__":
    # What is imported before the guards is not guarded, and nothing of ours was.
    assert not [name for name in sys.modules if name.startswith(_PACKAGE)], os.getpid()
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

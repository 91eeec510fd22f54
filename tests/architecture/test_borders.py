"""Things that may happen in a few named places only. A new place is added here with its reason, or the code moves."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import PRODUCT, ROOT, Module, dotted, modules

STDOUT_WRITERS = {
    "src/sbxtui/cli/output.py": "stdout is data, and this module is the one that knows which",
    "src/sbxtui/localcloud/runtimes/launch.py": "a forked copy flushes its buffers before it becomes another program",
    "src/sbxtui/localcloud/setup.py": "its result is the one line its starter reads",
}

ENVIRONMENT_READERS = {
    "src/sbxtui/settings.py": "the one reader of configuration",
    "src/sbxtui/home.py": "the login session says where its sockets go, and two homes must agree on it",
    "src/sbxtui/cli/output.py": "whether the terminal can be drawn on, and whether it may be coloured",
    "src/sbxtui/cli/envfile.py": "a variable that is named without a value is the person's own, as with docker",
    "src/sbxtui/control/local.py": "a detached process gets the caller's environment less its credentials",
    "src/sbxtui/services/runnerctl.py": "the same, for the runner",
    "src/sbxtui/localcloud/keeper.py": "it empties its environment, so that no sandbox inherits any of it",
    "src/sbxtui/localcloud/runtimes/boot_source.py": "inside the sandbox: what the keeper set goes on to init",
    "guest/sbxguest/init.py": "the guest's configuration is its environment, as a container's is",
    "src/sbxtui/localcloud/main.py": "it drops the caller's AWS variables before botocore can see them",
    "guest/sbxguest/innerboot.py": "the same, where the sandbox has a kernel of its own",
    "src/sbxtui/localcloud/aptfetch.py": "apt finds the network by the caller's proxy variables, as it always does",
    "src/sbxtui/services/localcloud.py": "a process of ours gets the caller's environment less its credentials",
    "guest/sbxguest/bridge.py": "the same, for the other program in a sandbox",
    "guest/sbxguest/connect.py": "a program of the sandbox finds its proxy by the usual variable",
}

# `except Exception` at process boundaries: what gets here is logged or shown, and the process lives on.
CATCH_ALLS = {
    "src/sbxtui/cli/main.py": "the CLI's outermost frame turns anything into an error for people",
    "src/sbxtui/mcp_server/selftest.py": "whatever keeps a server from answering is what is looked for",
    "src/sbxtui/mcp_server/running.py": "a tool call that meets a fault of ours is answered, and the server lives on",
    "src/sbxtui/core/threads.py": "a thread's outermost frame hands the error to the task that waits for it",
    "src/sbxtui/runner/serving.py": "one link that fails must not keep the others from being acted on",
    "src/sbxtui/runner/reconcile.py": "one context that fails must not keep the others from being reconciled",
    "src/sbxtui/localcloud/server.py": "a request handler answers 500 and serves the next one",
    "src/sbxtui/localcloud/images/shelf.py": "a build that breaks is a build that failed, and others go on",
    "src/sbxtui/localcloud/endpoints.py": "one broken connection must not end the endpoint",
    "src/sbxtui/localcloud/egress/gateway.py": "one broken connection must not end a sandbox's way out",
    "src/sbxtui/localcloud/keeper.py": "the keeper outlives what a runtime does to it",
    "src/sbxtui/localcloud/runtimes/launch.py": "between fork and exec nothing may return into the caller's copy",
    "guest/sbxguest/asgi.py": "a request handler answers 500 and serves the next one",
    "guest/sbxguest/shim.py": "a forked copy of init must never go on as init",
}

_UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def test_the_guest_starts_no_program_by_a_fork_of_its_server() -> None:
    """A fork of a process with threads can hang, and asyncio's children are waited for by somebody else than init."""
    words = ("preexec_fn", "create_subprocess", "multiprocessing")
    guest = [module for module in modules(*PRODUCT) if module.path.startswith("guest/")]
    hits = [f"{module.path}: {word}" for module in guest for word in words if word in (ROOT / module.path).read_text()]
    assert guest and not hits, hits


def test_only_the_named_modules_write_to_stdout() -> None:
    hits = [hit for module in modules(*PRODUCT) if module.path not in STDOUT_WRITERS for hit in _stdout_uses(module)]
    assert not hits, "\n".join(hits)


def test_only_the_named_modules_read_the_environment() -> None:
    hits = [
        hit
        for module in modules(*PRODUCT)
        if module.path not in ENVIRONMENT_READERS
        for hit in _environment_uses(module)
    ]
    assert not hits, "\n".join(hits)


def test_every_exception_is_caught_at_process_boundaries_only() -> None:
    hits = [hit for module in modules(*PRODUCT) if module.path not in CATCH_ALLS for hit in _catch_alls(module)]
    assert not hits, "\n".join(hits)


def test_every_named_place_still_needs_its_permission() -> None:
    found = {module.path: module for module in modules(*PRODUCT)}
    stale = [
        path
        for places, uses in (
            (STDOUT_WRITERS, _stdout_uses),
            (ENVIRONMENT_READERS, _environment_uses),
            (CATCH_ALLS, _catch_alls),
        )
        for path in places
        if path in found and not list(uses(found[path]))
    ]
    assert not stale, "\n".join(stale)


def test_no_module_of_the_folder_somebody_works_in_is_taken_for_one_of_ours() -> None:
    """Python puts the working folder in front for `-m`, and that may be a repository nobody has reviewed."""
    start = re.compile(r"sys\.executable,\s*(?:\*\()?\"-m\"")
    hits = [one.path for one in modules(*PRODUCT) if start.search(one.text) and 'cwd="/"' not in one.text]
    # It starts nothing: this is what a keeper is called.
    assert hits == ["src/sbxtui/localcloud/keeper_nursery.py"]


def test_nothing_is_left_for_later() -> None:
    hits = [
        f"{path}:{number}"
        for path in _tracked_text_files()
        for number, line in _lines(path)
        if _UNFINISHED.search(line)
    ]
    assert not hits, "\n".join(hits)


def test_no_lock_file_records_where_packages_came_from() -> None:
    locks = {"uv.lock", "poetry.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "Pipfile.lock"}
    assert [path for path in _tracked_files() if Path(path).name in locks] == []


def test_constraints_pin_versions_and_name_no_place() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []


def _stdout_uses(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        is_print = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
            and not _has_file(node)
        )
        is_stdout = isinstance(node, ast.Attribute) and dotted(node) in ("sys.stdout", "sys.__stdout__")
        if isinstance(node, ast.expr) and (is_print or is_stdout):
            yield module.at(node)


def _has_file(call: ast.Call) -> bool:
    return any(keyword.arg == "file" for keyword in call.keywords)


def _environment_uses(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if (isinstance(node, ast.Attribute) and dotted(node) in ("os.environ", "os.getenv", "os.environb")) or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "getenv"} & {alias.name for alias in node.names}
        ):
            yield module.at(node)


def _catch_alls(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not _raises_again(node):
            yield module.at(node)


def _catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or dotted(kind) in ("Exception", "BaseException") for kind in kinds)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _tracked_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    return [path for path in listed.stdout.split("\0") if path and (ROOT / path).is_file()]


def _tracked_text_files() -> list[str]:
    kinds = {".py", ".md", ".toml", ".yaml", ".json", ".js", ".mjs", ".sh", ".tcss", ".txt", ""}
    return [path for path in _tracked_files() if Path(path).suffix in kinds]


def _lines(path: str) -> Iterator[tuple[int, str]]:
    return enumerate((ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines(), start=1)

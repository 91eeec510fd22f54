"""What holds for every test: tests marked `root` need uid 0 and say so when they are skipped."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_rerunfailures import suspended_finalizers  # type: ignore[import-untyped]  # has no types of its own

from tests.support.sbx import Sbx, sbx_home

# What tests start shall buffer its output and keep its compiled modules, as what a person starts does.
for _name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)


@pytest.fixture(scope="module")
def sbx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sbx]:
    """An `sbx` with a home and a local cloud for all tests of a file; each uses names of its own."""
    with sbx_home(tmp_path_factory.mktemp("home")) as shared:
        yield shared


@pytest.fixture(scope="module")
def app(sbx: Sbx) -> str:
    """The name of a running sandbox shared by the tests of a file; they leave it running."""
    return sbx.ok("create", "app", "--memory", "512").out


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Sbx]:
    """An `sbx` whose home nothing has touched, and a test may break."""
    with sbx_home(tmp_path / "home") as own:
        yield own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, and skip what needs root where the tests run as somebody else."""
    _begin_with_the_longest(items)
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs uid 0"))


def _begin_with_the_longest(items: list[pytest.Item]) -> None:
    """Files with most long tests, then those with most: several workers end together when the last files are short."""
    tests, long = (Counter(item.path for item in some) for some in (items, filter(_is_long, items)))
    items.sort(key=lambda item: (-long[item.path], -tests[item.path], str(item.path)))


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that is tried again begins in a world of its own: what a file's tests share is made anew as well.

    The plugin that tries again keeps it, with whatever the first try left there: a name that is taken, a broken cloud.
    """
    if getattr(item, "execution_count", 1) > 1:
        state = item.session._setupstate
        state.stack.update(suspended_finalizers)
        suspended_finalizers.clear()
        state.teardown_exact(None)


def pytest_sessionfinish() -> None:
    """Take away the empty socket folders of the homes tests made: they lie outside those homes."""
    roots = [Path("/run/sbx")] if os.geteuid() == 0 else [Path(tempfile.gettempdir())]
    for root in roots:
        for folder in root.glob("*" if os.geteuid() == 0 else f"sbx-{os.geteuid()}-*"):
            for empty in (folder / "bells", folder):
                with contextlib.suppress(OSError):
                    empty.rmdir()

"""Every way of installing gives both commands, and the package carries all its files."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

from sbxtui import __version__
from tests.packaging.support import COMMANDS, ROOT, copy_tree, make_venv, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PACKAGES = {"sbxtui": "src/sbxtui", "sbxguest": "guest/sbxguest", "sbxinfra": "infra/sbxinfra"}
EXTRAS = "mcp,infra,isal,dev"

needs_cli = pytest.mark.skipif(
    importlib.util.find_spec("sbxtui.cli.main") is None, reason="this tree has no command line"
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the working tree that may be built in."""
    return copy_tree(tmp_path_factory.mktemp("tree"))


def test_the_wheel_holds_every_file_of_its_packages_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    bin_dir = make_venv(tmp_path / "venv")
    run(bin_dir / "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path / "out", ".", cwd=tree)
    (wheel,) = (tmp_path / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        f"{package}/{path.relative_to(tree / folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in (tree / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == expected


@needs_cli
@pytest.mark.parametrize("arguments", [["."], ["-e", "."]], ids=["installed", "editable"])
def test_pip_gives_both_commands(tree: Path, tmp_path: Path, arguments: list[str]) -> None:
    bin_dir = make_venv(tmp_path / "venv")
    run(bin_dir / "pip", "install", "--quiet", "-c", "constraints.txt", *arguments, cwd=tree)
    for command in COMMANDS:
        assert __version__ in run(
            bin_dir / command, "--version", cwd=tmp_path, env={"SBX_HOME": str(tmp_path / "home")}
        )


@needs_cli
def test_an_isolated_tool_install_gives_both_commands(tree: Path, tmp_path: Path) -> None:
    bin_dir = make_venv(tmp_path / "venv")
    run(bin_dir / "pip", "install", "--quiet", "pipx", cwd=tmp_path)
    env = {
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "commands"),
        "PIPX_MAN_DIR": str(tmp_path / "man"),
        "SBX_HOME": str(tmp_path / "home"),
    }
    run(bin_dir / "pipx", "install", "--pip-args", f"-c {tree / 'constraints.txt'}", tree, cwd=tmp_path, env=env)
    for command in COMMANDS:
        assert __version__ in run(tmp_path / "commands" / command, "--version", cwd=tmp_path, env=env)


def test_all_extras_together_resolve_within_the_constraints(tree: Path, tmp_path: Path) -> None:
    bin_dir = make_venv(tmp_path / "venv")
    run(bin_dir / "pip", "install", "--quiet", "--dry-run", "-c", "constraints.txt", f".[{EXTRAS}]", cwd=tree)


def test_the_version_is_written_once() -> None:
    assert f'"{__version__}"' in (ROOT / "src/sbxtui/_version.py").read_text()
    assert __version__ not in (ROOT / "pyproject.toml").read_text()

"""Files of this machine: what lies below an allowed folder and no link leads to, however it is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbxtui.core.errors import FileMissing, HostPathDenied, SbxError, UsageError
from sbxtui.mcp_server.hostpaths import HostPaths
from sbxtui.settings import load


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`allowed/{file,dir/inner,out -> outside,in -> file,pipe}`, `allowed-not/secret`, `outside/secret`."""
    for name in ("allowed/dir", "allowed-not", "outside"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("allowed/file", "allowed/dir/inner", "allowed-not/secret", "outside/secret"):
        (tmp_path / name).write_text(name)
    (tmp_path / "allowed/out").symlink_to(tmp_path / "outside")
    (tmp_path / "allowed/in").symlink_to("file")
    (tmp_path / "named").symlink_to("allowed")
    os.mkfifo(tmp_path / "allowed/pipe")
    return tmp_path


@pytest.mark.parametrize("path", ["allowed/file", "allowed//./dir/inner", "allowed", "named/file"])
def test_what_is_below_an_allowed_folder_can_be_read(tree: Path, path: str) -> None:
    roots = HostPaths([tree / "named" if path.startswith("named") else tree / "allowed"])
    with roots.opened(f"{tree}/{path}") as place:
        if not place.is_folder:
            assert Path(place.path).read_text().startswith("allowed/")


DENIED = [
    "allowed-not/secret",
    "outside/secret",
    "allowed/out/secret",
    "allowed/out",
    "allowed/in",
    "allowed/../outside/secret",
    "allowed/dir/..",
    "..",
]


@pytest.mark.parametrize("path", DENIED)
def test_everything_else_is_refused_for_reading_and_writing(tree: Path, path: str) -> None:
    roots = HostPaths([tree / "allowed"])
    with pytest.raises(HostPathDenied), roots.opened(f"{tree}/{path}"):
        pass
    with pytest.raises(HostPathDenied), roots.target(f"{tree}/{path}", "name"):
        pass
    with pytest.raises(HostPathDenied), roots.target(f"{tree}/{path}/new/file", "name"):
        pass


def test_other_spellings_of_a_path_are_no_way_around(tree: Path) -> None:
    roots = HostPaths([tree / "allowed"])
    for text in (f"file://{tree}/allowed/file", "http://x/y", "..", "../outside/secret", "~/x", f"{tree}/allowedx"):
        with pytest.raises(HostPathDenied), roots.opened(text):
            pass
    for text, kind in (("", UsageError), (f"{tree}/allowed/no", FileMissing), (f"{tree}/allowed/pipe", UsageError)):
        with pytest.raises(kind), roots.opened(text):
            pass
    with pytest.raises(SbxError), HostPaths([]).opened(f"{tree}/allowed/file"):
        pass


def test_what_is_written_stands_in_the_folder_that_was_checked(tree: Path) -> None:
    roots = HostPaths([tree / "allowed"])
    with roots.target(f"{tree}/allowed/dir", "made") as place:
        assert (place.shown, place.exists) == (f"{tree}/allowed/dir/made", False)
        # Somebody puts a link in the folder's place: the one that is held is the one that is written to.
        (tree / "allowed/dir").rename(tree / "allowed/moved")
        (tree / "allowed/dir").symlink_to(tree / "outside")
        Path(place.path).write_text("here")
    assert (tree / "allowed/moved/made").read_text() == "here"
    assert not (tree / "outside/made").exists()
    with roots.target(f"{tree}/allowed/file", "x") as place:
        assert place.exists


@pytest.mark.parametrize(("folder", "allowed"), [("/", []), ("home", []), ("home/project", ["home/project"])])
def test_without_settings_the_working_folder_is_allowed_but_never_the_home_folder_or_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, allowed: list[str]
) -> None:
    (tmp_path / "home/project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir("/" if folder == "/" else tmp_path / folder)
    home = {"SBX_HOME": str(tmp_path / "sbx")}
    settings = load(home, cwd=tmp_path)
    assert HostPaths.of(settings).roots == [str((tmp_path / one).resolve()) for one in allowed]
    settings = load(
        {"SBX_HOME": str(tmp_path / "sbx"), "AGENT_SANDBOX_MCP_HOST_PATHS": f"{tmp_path}:/etc"}, cwd=tmp_path
    )
    assert HostPaths.of(settings).roots == [str(tmp_path.resolve()), "/etc"]
    settings = load({"SBX_HOME": str(tmp_path / "sbx"), "SBX_MCP_HOST_PATH_POLICY": "unrestricted"}, cwd=tmp_path)
    assert HostPaths.of(settings).roots == ["/"]

"""Trees as tar streams: what goes in comes out, and a hostile archive never reaches outside."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxguest.tree import Problem, TreeError, TreeReport, Unpacker, pack


def unpack(target: Path, data: bytes, *, step: int = 70_000, max_bytes: int | None = None) -> TreeReport:
    target.mkdir(exist_ok=True)
    unpacker = Unpacker(str(target), max_bytes=max_bytes)
    try:
        for start in range(0, len(data), step):
            unpacker.write([data[start : start + step]])
        return unpacker.commit()
    finally:
        unpacker.abort()


def archive(*members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def member(
    name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, target, mode, len(content)
    return info, content


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        name, seen = os.fspath(path.relative_to(root)), path.lstat()
        mode = stat.S_IMODE(seen.st_mode)
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("dir", mode)
        else:
            found[name] = ("file", mode, seen.st_mtime_ns, path.read_bytes())
    return found


def test_a_tree_comes_out_as_it_went_in(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub/empty").mkdir(parents=True)
    (source / "sub/file").write_bytes(os.urandom(700_001))
    (source / "script.sh").write_bytes(b"#!/bin/sh\n")
    (source / "script.sh").chmod(0o755)
    (source / os.fsdecode(b"\xff\xfe \n")).write_bytes(b"odd name")
    (source / ("long" * 60)).write_bytes(b"long name")
    (source / "deep").mkdir()
    (source / "deep/link").symlink_to("../sub/file")
    (source / "zero").touch()
    os.utime(source / "zero", ns=(0, 1_700_000_000_123_456_789))
    (source / "locked").mkdir()
    (source / "locked/inside").write_bytes(b"x")
    (source / "locked").chmod(0o500)
    report = unpack(tmp_path / "target", b"".join(pack(str(source))))
    assert snapshot(tmp_path / "target") == snapshot(source)
    assert (report.files, report.folders, report.links, report.problem_count) == (6, 4, 1, 0)


def test_any_size_of_pieces_gives_the_same_tree(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for size in (0, 1, 511, 512, 513):
        (source / f"f{size}").write_bytes(b"x" * size)
    data = b"".join(pack(str(source)))
    for step in (1, 7, 511, 512, 513, 10_000):
        unpack(tmp_path / f"target{step}", data, step=step)
        assert snapshot(tmp_path / f"target{step}") == snapshot(source)


def test_tar_itself_reads_what_pack_writes_and_the_other_way_round(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/file").write_bytes(b"content")
    with tarfile.open(fileobj=io.BytesIO(b"".join(pack(str(source))))) as tar:
        assert sorted(tar.getnames()) == ["sub", "sub/file"]
    for number, style in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        target = tmp_path / f"target{number}"
        name = "n" * 90 if style == tarfile.USTAR_FORMAT else "n" * 180
        unpack(target, archive(member("./a/b", b"1"), member(name, b"2"), format=style))
        assert ((target / "a/b").read_bytes(), (target / name).read_bytes()) == (b"1", b"2")


def test_what_is_left_out_is_said_at_both_ends(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "fifo")
    (source / "absolute").symlink_to("/etc/passwd")
    report = unpack(tmp_path / "target", b"".join(pack(str(source))))
    assert sorted(report.problems, key=lambda one: one.path) == [
        Problem("absolute", "unsafe_link"),
        Problem("fifo", "special_file"),
    ]
    assert list((tmp_path / "target").iterdir()) == []


UNSAFE_NAMES = ["/etc/x", "../x", "a/../../x", "a/..", "..", "./../x", "a//../..//x"]


@pytest.mark.parametrize("name", UNSAFE_NAMES)
def test_a_name_that_leads_outside_ends_the_unpacking(tmp_path: Path, name: str) -> None:
    for kind in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE):
        with pytest.raises(TreeError) as caught:
            unpack(tmp_path / "target", archive(member(name, kind=kind, target="x")))
        assert caught.value.code == "unsafe_path"
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


UNSAFE_LINKS = ["/etc", "..", "../x", "a/../../x", "a/..", "d/d/..", "./../x", "sub/../sub", "", "///"]


@pytest.mark.parametrize("target", UNSAFE_LINKS)
def test_a_link_that_could_lead_outside_is_left_out_and_reported(tmp_path: Path, target: str) -> None:
    report = unpack(
        tmp_path / "target", archive(member("link", kind=tarfile.SYMTYPE, target=target), member("file", b"1"))
    )
    assert report.problems == (Problem("link", "unsafe_link"),)
    assert os.listdir(tmp_path / "target") == ["file"]


def test_links_that_stay_inside_are_made(tmp_path: Path) -> None:
    safe = {"a/link": "../b/file", "a/b/c/up": "../../../x", "here": ".", "dangling": "nowhere/at/all"}
    report = unpack(
        tmp_path / "target", archive(*(member(name, kind=tarfile.SYMTYPE, target=to) for name, to in safe.items()))
    )
    assert (report.links, report.problem_count) == (len(safe), 0)
    assert {name: os.readlink(tmp_path / "target" / name) for name in safe} == safe


def test_a_link_in_the_way_is_never_followed(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (outside / "precious").write_bytes(b"precious")
    (target / "dir").symlink_to(outside)
    (target / "file").symlink_to(outside / "precious")
    report = unpack(target, archive(member("dir/new", b"x"), member("dir/precious", b"x"), member("file", b"mine")))
    assert {problem.code for problem in report.problems} == {"not_a_directory"}
    assert [path.read_bytes() for path in outside.iterdir()] == [b"precious"]
    assert not (target / "file").is_symlink() and (target / "file").read_bytes() == b"mine"


def test_a_link_made_by_the_archive_is_not_followed_by_its_later_members(tmp_path: Path) -> None:
    (tmp_path / "target/sub").mkdir(parents=True)
    report = unpack(
        tmp_path / "target",
        archive(member("link", kind=tarfile.SYMTYPE, target="sub"), member("link/file", b"x")),
    )
    assert report.problems == (Problem("link/file", "not_a_directory"),)
    assert list((tmp_path / "target/sub").iterdir()) == []


def test_hard_links_name_files_of_the_tree_only(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    target = tmp_path / "target"
    target.mkdir()
    (target / "way").symlink_to(secret)
    report = unpack(
        target,
        archive(
            member("a/file", b"shared"),
            member("b/same", kind=tarfile.LNKTYPE, target="a/file"),
            member("stolen", kind=tarfile.LNKTYPE, target="way"),
            member("missing", kind=tarfile.LNKTYPE, target="nothing"),
        ),
    )
    assert (target / "b/same").stat().st_ino == (target / "a/file").stat().st_ino
    assert report.problems == (Problem("stolen", "unsafe_link"), Problem("missing", "file_not_found"))
    assert secret.stat().st_nlink == 1
    assert [path.name for path in target.rglob(".sbx-put-*")] == []


def test_set_id_bits_and_devices_do_not_come_out(tmp_path: Path) -> None:
    report = unpack(
        tmp_path / "target",
        archive(
            member("tool", b"x", mode=0o6755),
            member("null", kind=tarfile.CHRTYPE),
            member("disk", kind=tarfile.BLKTYPE),
            member("pipe", kind=tarfile.FIFOTYPE),
        ),
    )
    assert stat.S_IMODE((tmp_path / "target/tool").stat().st_mode) == 0o755
    assert [problem.code for problem in report.problems] == ["special_file"] * 3
    assert os.listdir(tmp_path / "target") == ["tool"]


def _huge_record() -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 2**40
    return info.tobuf(tarfile.GNU_FORMAT)


def _bad_checksum() -> bytes:
    data = bytearray(archive(member("file", b"x")))
    data[10] ^= 1
    return bytes(data)


def _pax(record: bytes) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    return info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(512, b"\0") + archive(member("file", b"x"))


BROKEN: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no archive": lambda: os.urandom(512 * 4),
    "cut in a header": lambda: archive(member("file", b"x" * 600))[:100],
    "cut in a file": lambda: archive(member("file", b"x" * 600))[:900],
    "cut before the end": lambda: archive(member("file", b"x" * 600))[:1536],
    "a record of a terabyte": _huge_record,
    "a wrong checksum": _bad_checksum,
    "a record without length": lambda: _pax(b"path=x\n"),
    "a record longer than itself": lambda: _pax(b"999 path=x\n"),
    "a record of length zero": lambda: _pax(b"0 path=x\n"),
    "a size below zero": lambda: _pax(b"11 size=-1\n"),
    "a size that is none": lambda: _pax(b"12 size=inf\n"),
    "a time that is none": lambda: _pax(b"13 mtime=nan\n"),
    "a sparse file": lambda: _pax(b"22 GNU.sparse.major=1\n"),
    "a report that is none": lambda: tarfile.TarInfo.create_pax_global_header({"SBX.left_out": "[[["}),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_archive_is_refused_and_leaves_no_half_file(tmp_path: Path, what: str) -> None:
    with pytest.raises(TreeError) as caught:
        unpack(tmp_path / "target", BROKEN[what]())
    assert caught.value.code == "bad_archive"
    names = os.listdir(tmp_path / "target")
    assert names in ([], ["file"]) and all((tmp_path / "target" / name).stat().st_size == 600 for name in names)


@pytest.mark.long
def test_more_than_was_allowed_is_refused(tmp_path: Path) -> None:
    data = archive(member("a", b"x" * 1000), member("b", b"x" * 1000))
    with pytest.raises(TreeError) as caught:
        unpack(tmp_path / "target", data, max_bytes=1999)
    assert caught.value.code == "too_large"
    assert unpack(tmp_path / "target", data, max_bytes=2000).size_bytes == 2000
    many = archive(*(member(f"d{number}", kind=tarfile.DIRTYPE) for number in range(10_001)))
    with pytest.raises(TreeError, match="10000 entries"):
        unpack(tmp_path / "many", many, max_bytes=2000)


def test_a_file_in_the_place_of_a_folder_is_a_problem_of_that_entry_only(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "dir").mkdir(parents=True)
    (target / "file").write_bytes(b"")
    report = unpack(target, archive(member("dir", b"x"), member("file/below", b"x"), member("fine", b"x")))
    assert report.problems == (Problem("dir", "is_a_directory"), Problem("file/below", "not_a_directory"))
    assert (target / "fine").read_bytes() == b"x"
    assert [path.name for path in target.rglob(".sbx-put-*")] == []


@given(st.binary(max_size=4096))
def test_no_bytes_at_all_make_anything_outside_or_any_other_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    head = bytearray(archive(member("a/file", b"content"), member("b", kind=tarfile.SYMTYPE, target="a")))
    for at, byte in enumerate(noise):
        head[at * 37 % 2048] ^= byte if at % 3 == 0 else 0
    with contextlib.suppress(TreeError):
        unpack(folder / "target", bytes(head))
    assert os.listdir(folder) == ["target"]


@pytest.mark.parametrize(
    "folder", ["/proc/sys/kernel/random", "/sys/devices/system/clocksource/clocksource0"], ids=["no size", "a guess"]
)
def test_the_kernels_own_files_come_out_as_long_as_they_are(tmp_path: Path, folder: str) -> None:
    if not Path(folder).is_dir():
        pytest.skip(f"no {folder} here")
    assert unpack(tmp_path / "out", b"".join(pack(folder))).files
    for came in (tmp_path / "out").iterdir():
        if came.name in ("boot_id", "current_clocksource"):
            assert came.read_bytes() == (Path(folder) / came.name).read_bytes() != b""


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TreeError) as caught:
        b"".join(pack(str(tmp_path / "nothing")))
    assert caught.value.code == "file_not_found"

"""This machine's system as something to build upon: a folder with the parts of a root that are copied, made once.

Files of `/usr` stay where they are and are seen through it; its folders are made anew, so that whoever owns these can
put files into them and take others out. `/etc` and what package managers know are copies of what anybody may read here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sbxtui.localcloud.ownroot import part_name
from sbxtui.localcloud.runtimes.base import readable_path
from sbxtui.localcloud.runtimes.reachable import make_copies_dir
from sbxtui.localcloud.runtimes.system_view import ETC_FROM_HOST, ETC_OF_OURS, system_folders, system_links

# Pruned as copies of the guest are, whose names begin so.
PREFIX = "tree-system-"
_LAYOUT = "2"
_FOLDERS = (
    *("etc", "opt/sbx", "srv", "mnt", "media", "home/sandbox", "work", "run", "proc", "dev", "sys", "usr"),
    *("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/cache/debconf", "var/log/apt", "var/spool"),
)
_LINKS = {"var/tmp": "/tmp", "var/run": "/run", "var/lock": "/run/lock"}
# For whoever installs packages or makes users, beside what every sandbox sees.
_ETC_FOR_BUILDS = (
    *("adduser.conf", "deluser.conf", "login.defs", "default/useradd", "skel", "shells", "pam.d", "pam.conf"),
    *("apt", "dpkg", "debconf.conf", "debian_version", "ucf.conf", "ld.so.conf", "ld.so.conf.d", "lsb-release"),
    *("pip.conf", "bash.bashrc", "profile", "timezone", "locale.alias", "gai.conf", "host.conf", "libaudit.conf"),
    *("perl", "python3", "sgml", "xml", "fonts", "magic", "terminfo", "ca-certificates.conf"),
)
# Where dpkg keeps what it knows of each package, thousands of files: they stay where they are, too.
_DPKG = "/var/lib/dpkg"
_VAR = ("lib/apt/extended_states", "lib/ucf", "lib/pam", "lib/sgml-base", "lib/xml-core", "lib/python")
_NOT_COPIED = re.compile(r"(auth\.conf.*|lock.*|.*\.dpkg-.*|.*-old)")
# Names and passwords in addresses are this machine's, not an image's.
_WITH_PASSWORD = re.compile(r"://[^/\s]*@")
_MAY_HOLD_ADDRESSES = ("/etc/apt/", "/etc/pip.conf")
_SYSTEM_IDS = 1000
# Folders below libraries' that are deeper are one package's own, and most of all: whoever replaces that does without.
_DEPTH = 4
_LIBRARIES = ("lib", "lib32", "lib64", "libx32")


def system_root(copies_dir: Path) -> Path:
    """The folder with the parts of this machine's system, made anew when that has changed. Blocking.

    Raises:
        OSError: The disk is full.
    """
    folder = copies_dir / f"{PREFIX}{_fingerprint()}"
    if not folder.is_dir():
        make_copies_dir(copies_dir)
        building = Path(tempfile.mkdtemp(dir=copies_dir, prefix=".building-"))
        try:
            _fill(building)
            building.chmod(0o755)
            with contextlib.suppress(OSError):
                # Another process may have been first.
                building.rename(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    os.utime(folder)
    return folder


def system_parts() -> dict[str, str]:
    """Paths of this machine's folders that are parts of a root of their own, each with itself."""
    folders = system_folders()
    parts = {path: source for path, source in folders.items() if path.count("/") == 1 and Path(source).is_dir()}
    return parts | ({_DPKG: _DPKG} if readable_path(Path(_DPKG) / "status") else {})


def _fingerprint() -> str:
    seen: list[object] = [_LAYOUT, os.geteuid()]
    for path in (*_sources(), *map(Path, system_parts()), Path("/usr/lib"), Path("/usr/share"), Path("/etc/passwd")):
        with contextlib.suppress(OSError):
            info = path.lstat()
            seen.append((str(path), info.st_size, info.st_mtime_ns))
    seen.append(sorted(system_links().items()))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:24]


def _sources() -> list[Path]:
    paths = [Path("/etc") / name for name in _ETC_FOR_BUILDS] + [Path("/var") / name for name in _VAR]
    versions = sorted(Path("/etc").glob("python3.*"))
    return [*map(Path, ETC_FROM_HOST), *paths, *versions, Path("/var/lib/dpkg/status"), Path("/etc/apt/sources.list.d")]


def _fill(building: Path) -> None:
    top = building / part_name("/")
    for name in _FOLDERS:
        _make_folder(top / name)
    for name, mode in (("tmp", 0o1777), ("root", 0o700)):
        (top / name).mkdir()
        (top / name).chmod(mode)
    for source in _sources():
        _copy(source, top / str(source)[1:])
    for path, target in {**_LINKS, **{path[1:]: target for path, target in system_links().items()}}.items():
        if not os.path.lexists(top / path):
            (top / path).symlink_to(target)
    _write_users(top / "etc")
    for part, folder in system_parts().items():
        _copy_folders(folder, str(building / part_name(part)))
    if _DPKG in system_parts():
        _make_folder(top / _DPKG[1:])
        _copy_state(building / part_name(_DPKG))


def _copy_state(target: Path) -> None:
    """What dpkg changes in place, and locks."""
    for source in (file for folder in ("", "triggers") for file in (Path(_DPKG) / folder).glob("*")):
        copy = target / source.relative_to(_DPKG)
        if source.name.lower().startswith("lock"):
            copy.touch()
            copy.chmod(0o640)
        elif source.is_file():
            _copy(source, copy)


def _make_folder(folder: Path) -> None:
    """With those above it, open to all whatever the umask."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)


def _copy(source: Path, target: Path) -> None:
    """What anybody may read of it; links are copied as links."""
    try:
        info = source.lstat()
        if _NOT_COPIED.fullmatch(source.name) or (os.path.lexists(target) and not target.is_dir()):
            return
        if stat.S_ISLNK(info.st_mode):
            _make_folder(target.parent)
            target.symlink_to(source.readlink())
        elif stat.S_ISDIR(info.st_mode) and info.st_mode & 0o005 == 0o005:
            _make_folder(target)
            for inner in sorted(source.iterdir()):
                _copy(inner, target / inner.name)
        elif stat.S_ISREG(info.st_mode) and info.st_mode & 0o004:
            _make_folder(target.parent)
            _copy_file(source, target)
            target.chmod(info.st_mode & 0o755 | 0o200)
    except FileNotFoundError:
        # It was removed meanwhile, or never there.
        return


def _copy_file(source: Path, target: Path) -> None:
    if not str(source).startswith(_MAY_HOLD_ADDRESSES):
        shutil.copyfile(source, target)
        shutil.copystat(source, target)
        return
    content = source.read_bytes()
    with contextlib.suppress(UnicodeDecodeError):
        lines = content.decode().splitlines(keepends=True)
        content = "".join(line for line in lines if not _WITH_PASSWORD.search(line)).encode()
    target.write_bytes(content)


def _copy_folders(source: str, target: str, depth: int | None = None) -> None:
    """The folders below one alone, with links to folders left out: what is in them is seen through these."""
    # The plain calls: there are thousands.
    os.mkdir(target)  # noqa: PTH102
    os.chmod(target, 0o755)  # noqa: PTH101
    if depth == 0:
        return
    if depth is None and source.rpartition("/")[2] in _LIBRARIES:
        depth = _DEPTH
    with contextlib.suppress(OSError), os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & 0o005 == 0o005:
                _copy_folders(entry.path, f"{target}/{entry.name}", depth and depth - 1)


def _write_users(etc: Path) -> None:
    """Users and groups of ours, and behind them those of this machine's own system: packages' files are theirs."""
    names: dict[str, list[str]] = {}
    for name in ("passwd", "group"):
        ours = ETC_OF_OURS[f"/etc/{name}"].replace("/nonexistent:/usr/sbin/nologin", "/root:/bin/sh", 1).splitlines()
        taken = {line.split(":")[0] for line in ours}
        lines = [*ours, *(line for line in _system_entries(Path("/etc") / name) if line.split(":")[0] not in taken)]
        _write(etc / name, lines, 0o644)
        names[name] = [line.split(":")[0] for line in lines]
    _write(etc / "shadow", (f"{name}:*:19000:0:99999:7:::" for name in names["passwd"]), 0o600)
    _write(etc / "gshadow", (f"{name}:*::" for name in names["group"]), 0o600)
    _write(etc / "nsswitch.conf", ETC_OF_OURS["/etc/nsswitch.conf"].splitlines(), 0o644)


def _system_entries(file: Path) -> Iterable[str]:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in file.read_text().splitlines():
            fields = line.split(":")
            # People's names, and who is in which group, are nobody's business.
            if len(fields) >= 4 and fields[2].isdecimal() and int(fields[2]) < _SYSTEM_IDS:
                yield ":".join([*fields[:3], ""]) if file.name == "group" else line


def _write(file: Path, lines: Iterable[str], mode: int) -> None:
    file.unlink(missing_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))
    file.chmod(mode)

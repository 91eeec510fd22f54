"""Which files of this machine a client may have copied: those below the allowed folders, however they are named.

A path is opened name by name from the allowed folder's own descriptor, and no link is followed on the way: what was
checked is what is used, whatever is renamed meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import FileMissing, HostPathDenied, UsageError
from sbxtui.core.paths import at_home
from sbxtui.core.text import harmless_line
from sbxtui.settings import Settings

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe or a device must not hold up, or be changed by, being looked at.
_ANY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Root:
    """An allowed folder: as it was named, and where it really is."""

    named: Path
    real: Path


@dataclass(frozen=True, slots=True)
class Place:
    """A path that is held open, or whose folder is. `path` leads to exactly that, `shown` is how people know it."""

    path: str
    name: str
    shown: str
    is_folder: bool = False
    exists: bool = True


class HostPaths:
    """The allowed folders of a server, settled when it starts."""

    def __init__(self, roots: Sequence[Path], *, is_unrestricted: bool = False) -> None:
        everything = (Path("/"),)
        named = [Path(root).absolute() for root in (everything if is_unrestricted else roots)]
        self._roots = [Root(root, root.resolve()) for root in named]
        self.is_unrestricted = is_unrestricted

    @classmethod
    def of(cls, settings: Settings) -> HostPaths:
        """As the settings have it: the named folders, else the working folder, but neither `/` nor the home folder."""
        if settings.mcp_host_path_policy == "unrestricted":
            return cls((), is_unrestricted=True)
        return cls(settings.mcp_host_paths or _working_folder())

    @property
    def roots(self) -> list[str]:
        """The allowed folders."""
        return [str(root.real) for root in self._roots]

    @contextlib.contextmanager
    def opened(self, text: str) -> Iterator[Place]:
        """A file or folder that is there, to read.

        Raises:
            HostPathDenied: It is not below an allowed folder, or a link leads there.
            FileMissing: There is nothing. UsageError: It is neither a file nor a folder.
        """
        root, names = self._below(text)
        with contextlib.ExitStack() as stack:
            folder = self._walk(stack, root, names[:-1], text)
            number = folder if not names else _open(stack, names[-1], folder, _ANY, text)
            kind = os.fstat(number).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise UsageError(f"{_shown(text)} is neither a file nor a folder")
            name = names[-1] if names else root.real.name
            yield Place(_path_of(number), name, _joined(root, names), is_folder=stat.S_ISDIR(kind))

    @contextlib.contextmanager
    def target(self, text: str, name: str) -> Iterator[Place]:
        """Where something called `name` is to be written: a path, or in the folder that is there; its folder is held.

        Raises:
            As `opened`. HostPathDenied: A link is there already.
        """
        root, names = self._below(text)
        with contextlib.ExitStack() as stack:
            folder = self._walk(stack, root, names[:-1], text)
            leaf = names[-1] if names else name
            if names and _kind_of(leaf, folder, text) == stat.S_IFDIR:
                folder, leaf = _open(stack, leaf, folder, _FOLDER, text), name
                names = [*names, name]
            exists = _kind_of(leaf, folder, text) != 0
            yield Place(f"{_path_of(folder)}/{leaf}", leaf, _joined(root, names or [name]), exists=exists)

    def _below(self, text: str) -> tuple[Root, list[str]]:
        if not text or "\0" in text:
            raise UsageError("a path of this machine was empty")
        if "://" in text:
            raise HostPathDenied(f"{_shown(text)} is an address, no path", hint="like /home/you/project/file")
        if not text.startswith("/"):
            text = f"{Path.cwd()}/{text}"
        names = [name for name in text.split("/") if name not in ("", ".")]
        if ".." in names:
            raise HostPathDenied(f"{_shown(text)} has `..` in it", hint="name it without")
        for root in self._roots:
            for folder in (root.named, root.real):
                parts = [part for part in folder.parts if part != "/"]
                if names[: len(parts)] == parts:
                    return root, names[len(parts) :]
        raise HostPathDenied(
            f"{_shown(text)} is not below an allowed folder",
            hint=f"allowed: {', '.join(self.roots)}"
            if self._roots
            else "none is allowed: SBX_MCP_HOST_PATHS names them",
        )

    def _walk(self, stack: contextlib.ExitStack, root: Root, names: Sequence[str], text: str) -> int:
        folder = _open(stack, str(root.real), None, _FOLDER, text)
        for name in names:
            folder = _open(stack, name, folder, _FOLDER, text)
        return folder


def _open(stack: contextlib.ExitStack, name: str, folder: int | None, flags: int, text: str) -> int:
    try:
        number = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError as exc:
        raise FileMissing(f"no {_shown(text)} on this machine") from exc
    except OSError as exc:
        if _is_a_link(name, folder):
            raise _is_link(text) from exc
        raise UsageError(f"cannot open {_shown(text)}: {exc.strerror or exc}") from exc
    stack.callback(os.close, number)
    return number


def _kind_of(name: str, folder: int, text: str) -> int:
    """What is there, 0 for nothing.

    Raises:
        HostPathDenied: A link.
    """
    try:
        kind = stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode)
    except FileNotFoundError:
        return 0
    except OSError as exc:
        raise UsageError(f"cannot look at {_shown(text)}: {exc.strerror or exc}") from exc
    if kind == stat.S_IFLNK:
        raise _is_link(text)
    return kind


def _is_a_link(name: str, folder: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False


def _is_link(text: str) -> HostPathDenied:
    return HostPathDenied(f"a link stands on the way of {_shown(text)}", hint="name what it points to")


def _path_of(number: int) -> str:
    return f"/proc/self/fd/{number}"


def _joined(root: Root, names: Sequence[str]) -> str:
    return str(root.real.joinpath(*names))


def _shown(text: str) -> str:
    return f"`{harmless_line(text, limit=200)}`"


def _working_folder() -> tuple[Path, ...]:
    try:
        folder = Path.cwd().resolve()
    except OSError:
        return ()
    home = at_home("~").resolve()
    # Clients start servers anywhere: what is as wide as this was chosen by nobody.
    return () if folder in (home, *home.parents) else (folder,)

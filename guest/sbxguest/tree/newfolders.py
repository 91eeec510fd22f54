"""Folders that a batch makes together with what is in them: built in the stage, each put in its place in one step.

Nobody sees such a folder half-made, and what is in it costs no step of its own: its stamps are those it keeps. Where
something has a folder's name by then, what was built for it is made one by one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from sbxguest.tree.entry import State, new_digest
from sbxguest.tree.ops import NewFile
from sbxguest.tree.root import FOLDER_FLAGS, look, split, state_of
from sbxguest.tree.stage import Stage, write_all

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE, _FILE_MODE, _PROGRAM_MODE = 0o755, 0o644, 0o755


@dataclass(slots=True, eq=False)
class _Folder:
    """A folder that is built.

    Attributes:
        place: Where, below `incoming`.
        made: What stands in it and in those it is built with, by path; one for the outermost and all within.
        is_outermost: Whether it is the one that is put in its place.
        is_in_place: Whether it stands where it belongs.
    """

    place: bytes
    made: dict[bytes, State]
    is_outermost: bool
    is_in_place: bool = False


class NewFolders:
    """What one batch builds. Used from several threads one after another. `drop` it.

    No path that is built holds a link: whatever has a name already is left to be made by itself.

    Args:
        stage: Where it is built.
        own: Given each new file's and folder's descriptor, to set its owner.
        make_room: Called when the disk is full; says whether it is worth trying again.
    """

    def __init__(self, stage: Stage, own: Callable[[int], None], make_room: Callable[[], bool]) -> None:
        self._stage = stage
        self._own = own
        self._make_room = make_room
        self._folders: dict[bytes, _Folder] = {}
        self._held: tuple[_Folder | None, int] = (None, -1)

    def holds(self, folder: bytes) -> bool:
        """Whether a folder is being built here."""
        return folder in self._folders

    def is_in_place(self, folder: bytes) -> bool:
        """Whether a folder that was built here stands where it belongs."""
        built = self._folders.get(folder)
        return built is not None and built.is_in_place

    def name_of(self, path: bytes) -> str:
        """The name in `incoming` of what was built for a path."""
        built = self._folders.get(path)
        if built is not None:
            return os.fsdecode(built.place)
        folder, name = split(path)
        return os.fsdecode(self._folders[folder].place + b"/" + name)

    def folder(self, path: bytes) -> State | None:
        """Begin a folder; None if it has to be made by itself."""
        if path in self._folders:
            return None
        folder, name = split(path)
        above = self._folders.get(folder)
        if above is None:
            built = _Folder(self._stage.new_name().encode(), {}, is_outermost=True)
        else:
            built = _Folder(above.place + b"/" + name, above.made, is_outermost=False)
        try:
            os.mkdir(built.place, _FOLDER_MODE, dir_fd=self._stage.incoming_fd)
        except OSError:
            return None
        try:
            fd = self._opened(built)
            self._own(fd)
            state = state_of(os.fstat(fd), name, fd)
        except OSError:
            self._leave()
            with contextlib.suppress(OSError):
                os.rmdir(built.place, dir_fd=self._stage.incoming_fd)
            return None
        self._folders[path] = built
        return _noted(built, path, state)

    def file(self, new: NewFile) -> State | None:
        """Make a file in a folder that is being built; None if it has to be made by itself, or is another content.

        Raises:
            OSError: The disk refuses. Nothing is left of it then.
        """
        folder, _, name = new.path.rpartition(b"/")
        built = self._folders.get(folder)
        if built is None:
            return None
        if new_digest(new.content).digest() != new.digest:
            return None
        folder_fd = self._opened(built)
        mode = _PROGRAM_MODE if new.is_executable else _FILE_MODE
        try:
            fd = os.open(name, _CREATE_FLAGS, mode, dir_fd=folder_fd)
        except FileExistsError:
            return None
        try:
            write_all(fd, new.content, self._make_room)
            self._own(fd)
            found = os.fstat(fd)
            if found.st_mode & 0o7777 != mode:
                os.fchmod(fd, mode)
                found = os.fstat(fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder_fd)
            raise
        finally:
            os.close(fd)
        # Nobody else has seen it yet, and this look was before anybody can; it was written to just now.
        state = State.of_file(found, new.digest, is_racy=not self._stage.has_exact_times)
        built.made[new.path] = state
        return state

    def link(self, path: bytes, target: bytes) -> State | None:
        """Make a link in a folder that is being built; None if it has to be made by itself."""
        folder, name = split(path)
        built = self._folders[folder]
        try:
            folder_fd = self._opened(built)
            os.symlink(target, name, dir_fd=folder_fd)
            return _noted(built, path, state_of(look(name, folder_fd), name, folder_fd))
        except OSError:
            return None

    def place(self, path: bytes, move: Callable[[str], None], on_made: Callable[[bytes, State | None], None]) -> bool:
        """Put a folder, with all in it, where it belongs; False if it and what is in it have to be made one by one.

        Args:
            path: Of the folder.
            move: Gives what has that name in `incoming` the folder's place.
            on_made: Told what will stand there, before it does: whoever sees it then knows that it is ours.
        """
        built = self._folders[path]
        if self.is_in_place(split(path)[0]):
            built.is_in_place = True
            return True
        self._leave()
        if built.is_outermost:
            for one, state in built.made.items():
                on_made(one, state)
        try:
            move(os.fsdecode(built.place))
        except OSError:
            return False
        built.is_in_place = True
        return True

    def drop(self) -> None:
        """Forget all of it that is not in its place."""
        self._leave()
        for built in self._folders.values():
            if built.is_outermost and not built.is_in_place:
                self._stage.drop_all(os.fsdecode(built.place))
        self._folders.clear()

    def _opened(self, built: _Folder) -> int:
        if self._held[0] is not built:
            self._leave()
            self._held = (built, os.open(built.place, FOLDER_FLAGS, dir_fd=self._stage.incoming_fd))
        return self._held[1]

    def _leave(self) -> None:
        fd = self._held[1]
        if fd >= 0:
            os.close(fd)
        self._held = (None, -1)


def _noted(built: _Folder, path: bytes, state: State | None) -> State | None:
    if state is not None:
        built.made[path] = state
    return state

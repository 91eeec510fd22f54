"""Folders that a batch makes together with what is in them: built in the stage, each put in its place in one step.

Nobody sees such a folder half-made, and what is in it costs no step of its own: its stamps are those it keeps. Where
something has a folder's name by then, what was built for it is made one by one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from sbxguest.tree.entry import State, new_digest
from sbxguest.tree.root import FOLDER_FLAGS, file_state, look, split, state_of
from sbxguest.tree.stage import Stage, write_all

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE, _FILE_MODE, _PROGRAM_MODE = 0o755, 0o644, 0o755


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
        self._names: dict[bytes, bytes] = {}
        self._tops: dict[bytes, list[tuple[bytes, State]]] = {}
        self._top: dict[bytes, bytes] = {}
        self._in_place: set[bytes] = set()
        self._held: tuple[bytes, int] = (b"", -1)

    def holds(self, folder: bytes) -> bool:
        """Whether a folder is being built here."""
        return folder in self._names

    def is_in_place(self, folder: bytes) -> bool:
        """Whether a folder that was built here stands where it belongs."""
        return folder in self._in_place

    def name_of(self, path: bytes) -> str:
        """The name in `incoming` of what was built for a path."""
        folder, name = split(path)
        return os.fsdecode(self._names.get(path) or self._names[folder] + b"/" + name)

    def folder(self, path: bytes) -> State | None:
        """Begin a folder; None if it has to be made by itself."""
        if path in self._names:
            return None
        above, name = split(path)
        is_within = above in self._names
        top = self._top[above] if is_within else path
        place = self._names[above] + b"/" + name if is_within else self._stage.new_name().encode()
        try:
            os.mkdir(place, _FOLDER_MODE, dir_fd=self._stage.incoming_fd)
        except OSError:
            return None
        self._names[path], self._top[path] = place, top
        self._tops.setdefault(top, [])
        try:
            fd = self._opened(path)
            self._own(fd)
            found = os.fstat(fd)
        except OSError:
            self._forget(path)
            return None
        return self._noted(path, top, state_of(found, name, fd))

    def file(self, path: bytes, content: bytes, goal: State) -> State | None:
        """Make a file in a folder that is being built; None if it has to be made by itself, or is another content.

        Raises:
            OSError: The disk refuses. Nothing is left of it then.
        """
        folder, _, name = path.rpartition(b"/")
        if folder not in self._names:
            return None
        digest = new_digest(content).digest()
        if digest != goal.content:
            return None
        folder_fd = self._opened(folder)
        mode = _PROGRAM_MODE if goal.is_executable else _FILE_MODE
        try:
            fd = os.open(name, _CREATE_FLAGS, mode, dir_fd=folder_fd)
        except FileExistsError:
            return None
        try:
            write_all(fd, content, self._make_room)
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
        # Nobody else has seen it yet, and this look was before anybody can.
        state = file_state(found, digest, is_exact=self._stage.has_exact_times)
        self._tops[self._top[folder]].append((path, state))
        return state

    def link(self, path: bytes, target: bytes) -> State | None:
        """Make a link in a folder that is being built; None if it has to be made by itself."""
        folder, name = split(path)
        try:
            folder_fd = self._opened(folder)
            os.symlink(target, name, dir_fd=folder_fd)
            return self._noted(path, self._top[folder], state_of(look(name, folder_fd), name, folder_fd))
        except OSError:
            return None

    def place(self, path: bytes, move: Callable[[str], None], on_made: Callable[[bytes, State | None], None]) -> bool:
        """Put a folder, with all in it, where it belongs; False if it and what is in it have to be made one by one.

        Args:
            path: Of the folder.
            move: Gives what has that name in `incoming` the folder's place.
            on_made: Told what will stand there, before it does: whoever sees it then knows that it is ours.
        """
        above, _ = split(path)
        if above in self._in_place:
            self._in_place.add(path)
            return True
        self._leave()
        for one, state in self._tops.get(path, ()):
            on_made(one, state)
        try:
            move(self.name_of(path))
        except OSError:
            return False
        self._in_place.add(path)
        return True

    def drop(self) -> None:
        """Forget all of it that is not in its place."""
        self._leave()
        for top in self._tops:
            if top not in self._in_place:
                self._stage.drop_all(self.name_of(top))
        for known in (self._names, self._tops, self._top):
            known.clear()

    def _noted(self, path: bytes, top: bytes, state: State | None) -> State | None:
        if state is not None:
            self._tops[top].append((path, state))
        return state

    def _forget(self, path: bytes) -> None:
        self._leave()
        with contextlib.suppress(OSError):
            os.rmdir(self._names[path], dir_fd=self._stage.incoming_fd)
        del self._names[path], self._top[path]
        if not self._tops.get(path, True):
            del self._tops[path]

    def _opened(self, folder: bytes) -> int:
        if self._held[1] < 0 or self._held[0] != folder:
            self._leave()
            self._held = (folder, os.open(self._names[folder], FOLDER_FLAGS, dir_fd=self._stage.incoming_fd))
        return self._held[1]

    def _leave(self) -> None:
        path, fd = self._held
        if fd >= 0:
            os.close(fd)
        self._held = (path, -1)

"""The files tab: the tree of a sandbox's files, and a look into one. It asks the sandbox only when a person does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.paths import at_home
from sbxtui.core.text import harmless_line
from sbxtui.tui.actions import SANDBOXES, Action
from sbxtui.tui.filetree import FileTree, Node, node_cells
from sbxtui.tui.fleet import key_of
from sbxtui.tui.preview import NOTHING
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.tabs.base import View
from sbxtui.tui.tabs.filework import FileWork, Listed, Looked, Transferred
from sbxtui.tui.widgets.fileview import FILE, VIEW, FileView
from sbxtui.tui.widgets.paths import LocalPaths
from sbxtui.tui.widgets.rows import Row, RowList
from sbxtui.tui.words import shown_name, state_text

FILES = "files"
ACTIONS = (
    Action(
        "files_open", "enter,right,l", "open", "sbx fs cat NAME PATH", "Opens a folder, or looks into a file.", 1, FILES
    ),
    Action("files_close", "left,h,backspace", "up", "", "Closes the folder, or goes above.", 2, FILES),
    Action("files_download", "w", "download", "sbx cp -r NAME:PATH DIR", "Copies it to this machine.", 3, FILES),
    Action("files_upload", "u", "upload", "sbx cp -r FILE NAME:DIR", "Copies into the folder.", 4, FILES, changes=True),
    Action("files_delete", "d", "delete", "sbx fs rm -r NAME PATH", "Deletes it; asks first.", 5, FILES, changes=True),
    Action("files_rename", "R", "rename", "sbx fs mv NAME OLD NEW", "Moves or renames it.", 6, FILES, changes=True),
    Action("files_folder", "m", "new folder", "sbx fs mkdir NAME PATH", "Makes a folder.", 7, FILES, changes=True),
    Action("files_copy", "y", "copy path", "", "Copies its path.", 8, FILES),
    Action("files_refresh", "r", "list anew", "sbx fs ls NAME PATH", "Asks anew; wakes a sleeping one.", 9, FILES),
    Action("view_left", "left,h", "left", scope=VIEW),
    Action("view_right", "right,l", "right", scope=VIEW),
    Action("file_copy", "y", "copy", "", "What is selected, else all that is shown.", 1, FILE),
    Action("file_download", "w", "download", "sbx cp NAME:PATH DIR", "Copies it to this machine.", 2, FILE),
)


class FilesTab(FileWork):
    """One tree per sandbox. Where it is narrow, a file takes the place of the tree; esc gives it back."""

    SCOPES: ClassVar[tuple[str, ...]] = (FILES, SANDBOXES)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.trees: dict[str, FileTree] = {}
        self.sandbox: Sandbox | None = None
        self._by_key: dict[str, Node] = {}

    def compose(self) -> ComposeResult:
        with Container(id="files-body"):
            yield RowList((FILES, SANDBOXES), id="tree")
            yield FileView(id="file")
        yield Static("", id="files-status", markup=False)

    # Which sandbox.

    def show(self, view: View) -> None:
        """Keep to the selected sandbox; another one is asked for its files only when the person goes there."""
        before, self.sandbox = self.sandbox, view.sandbox
        if self.sandbox is None or before is None or key_of(before) != key_of(self.sandbox):
            self._close_file()
            self.draw()
        elif before.state is not self.sandbox.state:
            self.draw()

    def brought(self) -> None:
        """The person came here: list what was not listed yet."""
        self._list_if_new()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._list_if_new()

    def first_inside(self) -> RowList | FileView:
        """The tree, or the file that stands in its place."""
        view = self.query_one(FileView)
        return view if self.has_class("-viewing") and not self.has_class("-beside") else self.query_one(RowList)

    def stops(self) -> list[Widget]:
        """The tree, and the file beside it; where only one is shown, that one."""
        shown = [self.query_one("#tree", RowList), self.query_one(FileView)]
        return list(shown) if self.has_class("-viewing") and self.has_class("-beside") else [self.first_inside()]

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= 90, "-beside")
        self.draw()

    @property
    def listing(self) -> FileTree | None:
        """The tree of the selected sandbox; None before it was asked for."""
        return self.trees.get(key_of(self.sandbox)) if self.sandbox is not None else None

    @property
    def node(self) -> Node | None:
        """What the cursor is on."""
        row = self.query_one("#tree", RowList).selected
        return self._by_key.get(row.key) if row is not None else None

    def _list_if_new(self) -> None:
        """List the root, unless that would wake a sandbox nobody asked to wake."""
        if self.sandbox is not None and self.listing is None and self.sandbox.state is SandboxState.RUNNING:
            self._list([self._root()])

    def _root(self) -> str:
        return self.main.settings.workdir

    def _list(self, folders: Sequence[str]) -> None:
        if self.sandbox is None or not self.sandbox.is_tracked:
            return
        self.trees.setdefault(key_of(self.sandbox), FileTree(self._root()))
        self.list_folders(self.sandbox, folders)
        self.draw()

    # What workers tell.

    @on(Listed)
    def listed(self, message: Listed) -> None:
        """Show a folder's entries, or why there are none."""
        tree = self.trees.get(message.key)
        if tree is None:
            return
        if message.error is None:
            tree.take(message.folder, message.entries, is_truncated=message.is_truncated)
        else:
            tree.fail(message.folder, f"{message.error.message} ({message.error.hint or 'r tries again'})")
        self.draw()

    @on(Looked)
    def looked(self, message: Looked) -> None:
        """Show a file, unless another one was asked for since."""
        if message.error is not None:
            self.main.failed(f"open {message.path}", message.error)
        elif self.sandbox is not None and message.key == key_of(self.sandbox):
            view = self.query_one(FileView)
            view.show(message.preview)
            self.add_class("-viewing")
            if not self.has_class("-beside") and self.has_focus_within:
                self.screen.set_focus(view)
            self._say()

    def rethemed(self) -> None:
        """Look into the same file again."""
        if self.sandbox is not None and self.has_class("-viewing"):
            self.look_into(self.sandbox, self.query_one(FileView).preview.path)

    @on(Transferred)
    def transferred(self, message: Transferred) -> None:
        """Say what became of a change, and list what it touched."""
        self.main.end_work(message.work, message.words, "warn" if message.error else "good")
        if message.error is not None:
            self.main.failed(message.doing, message.error)
        if self.sandbox is not None and message.key == key_of(self.sandbox) and message.folder:
            self._list([message.folder])

    # What the person does.

    @on(RowList.Opened)
    def do_files_open(self) -> None:
        """Open a folder or look into a file."""
        node, tree = self.node, self.listing
        if tree is None:
            self.do_files_refresh()
        elif node is None or node.info is None:
            return
        elif node.info.kind == "dir":
            tree.set_open(node.path, is_open=True)
            if tree.is_known(node.path):
                self.draw()
            else:
                self._list([node.path])
        elif self.sandbox is not None:
            self.look_into(self.sandbox, node.path)

    def do_files_close(self) -> None:
        """Close the folder the cursor is in; at the top, go to the folder above."""
        node, tree = self.node, self.listing
        if tree is None:
            return
        if node is not None and node.is_open:
            tree.set_open(node.path, is_open=False)
        elif node is not None and node.depth:
            parent = str(PurePosixPath(node.path).parent)
            tree.set_open(parent, is_open=False)
            self.query_one("#tree", RowList).move_to_key(parent)
        elif tree.root != "/":
            tree.go_up()
            if not tree.is_known(tree.root):
                self._list([tree.root])
        self.draw()

    def do_files_refresh(self) -> None:
        """List all open folders anew."""
        tree = self.listing
        self._list(tree.open_folders() if tree is not None else [self._root()])

    def do_files_copy(self) -> None:
        """Copy the path."""
        if self.node is not None:
            self.main.copy(self.node.path, "the path")

    def do_file_copy(self) -> None:
        """Copy what is selected, else all that is shown."""
        view = self.query_one(FileView)
        selected = self.screen.get_selected_text()
        self.main.copy(selected or "\n".join(view.preview.texts), "the selection" if selected else "what is shown")

    def do_file_download(self) -> None:
        """Download what is looked into."""
        if (path := self.query_one(FileView).preview.path) and self.sandbox is not None:
            self._ask_download(self.sandbox, path)

    def do_files_download(self) -> None:
        """Ask where to copy it to."""
        if (found := self._target()) is not None:
            self._ask_download(*found)

    def do_save_work(self) -> None:
        """Ask where to copy all of the work folder to."""
        sandbox = self.main.fleet.selected
        if sandbox is None or not sandbox.is_tracked:
            self.main.tell("no sandbox with a name is selected: nothing to save", "warning")
            return
        place = f"./{sandbox.name}-{PurePosixPath(sandbox.workdir).name}"
        self._ask_download(sandbox, sandbox.workdir, place)

    def do_files_upload(self) -> None:
        """Ask what to copy into the folder of the cursor."""
        sandbox, folder = self.sandbox, self._folder()
        if sandbox is None or not folder:
            return

        def answered(source: str | None) -> None:
            if source:
                self.upload(sandbox, str(at_home(source)), folder)

        line = _line("cp", "-r", "{}", f"{sandbox.name}:{folder}/")
        self.app.push_screen(
            AskScreen(f"Upload into {folder}", line=line, hint="a file or folder here", suggester=LocalPaths()),
            answered,
        )

    def do_files_delete(self) -> None:
        """Ask, then delete."""
        if (found := self._target()) is None or self.node is None or self.node.info is None:
            return
        sandbox, path = found
        is_folder = self.node.info.kind == "dir"

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.delete(sandbox, path, is_recursive=is_folder)

        loss = "The folder and everything in it is lost." if is_folder else "Nothing brings it back."
        self.app.push_screen(ConfirmScreen(f"Delete in {shown_name(sandbox)}?", [path], loss, "delete"), answered)

    def do_files_rename(self) -> None:
        """Ask where to move it."""
        if (found := self._target()) is None:
            return
        sandbox, path = found

        def answered(target: str | None) -> None:
            if target and target != path:
                self.move(sandbox, path, target)

        line = _line("fs", "mv", sandbox.name, path, "{}")
        self.app.push_screen(AskScreen(f"Move {PurePosixPath(path).name} to", path, line=line), answered)

    def do_files_folder(self) -> None:
        """Ask for a new folder's name."""
        sandbox, folder = self.sandbox, self._folder()
        if sandbox is None or not folder:
            return

        def answered(path: str | None) -> None:
            if path:
                self.make_folder(sandbox, str(PurePosixPath(folder) / path))

        self.app.push_screen(
            AskScreen(f"New folder in {folder}", line=_line("fs", "mkdir", sandbox.name, "{}")), answered
        )

    def do_back(self) -> None:
        """From the file to the tree; from there to where the screen goes."""
        if self.has_class("-viewing"):
            self._close_file()
            self.screen.set_focus(self.query_one("#tree", RowList))
            self._say()
        else:
            self.main.do_back()

    def _ask_download(self, sandbox: Sandbox, path: str, place: str = "") -> None:
        def answered(target: str | None) -> None:
            if target:
                self.download(sandbox, path, str(at_home(target)))

        line = _line("cp", "-r", f"{sandbox.name}:{path}", "{}")
        # What is shown is what is written to: a name may hold what nobody sees.
        name = harmless_line(PurePosixPath(path).name)
        title = f"Download {name} to (what is there is replaced)"
        self.app.push_screen(AskScreen(title, place or f"./{name}", line=line, suggester=LocalPaths()), answered)

    def _target(self) -> tuple[Sandbox, str] | None:
        node = self.node
        return (self.sandbox, node.path) if self.sandbox is not None and node is not None and node.info else None

    def _folder(self) -> str:
        """The folder new things go into: the one under the cursor if it is open, else the one the cursor is in."""
        tree, node = self.listing, self.node
        if tree is None:
            return ""
        if node is None or node.info is None:
            return tree.root if node is None else node.path
        return node.path if node.is_open else str(PurePosixPath(node.path).parent)

    # Drawing.

    def keys_moved(self) -> None:
        """The line below says keys."""
        self._say()

    def draw(self) -> None:
        """Draw the tree as it is now."""
        rows, tree = self.query_one("#tree", RowList), self.listing
        nodes = tree.nodes() if tree is not None else []
        self._by_key = {f"{node.path}\0{node.words}" if node.info is None else node.path: node for node in nodes}
        rows.show([Row(key, node_cells(node, rows.size.width - 2)) for key, node in self._by_key.items()])
        self._say()

    def _say(self) -> None:
        self.say("#files-status", harmless_line(self.words_of(self.sandbox, self._status)))

    def _status(self, sandbox: Sandbox) -> str:
        name = shown_name(sandbox)
        if self.has_class("-viewing"):
            preview = self.query_one(FileView).preview
            return f"{preview.path} · {preview.words or 'empty'} · esc closes it"
        if self.listing is not None:
            return f"{name}:{self.listing.root}"
        if sandbox.state is SandboxState.RUNNING:
            return f"{self.keys_to('tab_files')} lists the files of {name}"
        keys = self.keys_to("files_refresh")
        return f"{name} is {state_text(sandbox.state)}: {keys} lists its files, which wakes it"

    def _close_file(self) -> None:
        self.remove_class("-viewing")
        self.query_one(FileView).show(NOTHING)


def _line(*words: str) -> _Line:
    return _Line(words)


class _Line:
    """The command line with what is typed in the place of `{}`."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def __call__(self, value: str) -> str:
        return shlex.join(["sbx", *(value if word == "{}" else word for word in self._words)])

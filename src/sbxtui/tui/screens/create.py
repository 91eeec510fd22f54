"""Making a sandbox: name and size; the network is said, not chosen, where it cannot be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from sbxtui.core.errors import PolicyDenied, UsageError
from sbxtui.core.model import DEFAULT_MEMORY_MIB, MEMORY_SIZES_MIB, VCPUS_BY_MEMORY_MIB, Context, ContextKind
from sbxtui.core.names import MAX_NAME_LENGTH, check_name
from sbxtui.core.sizing import check_network
from sbxtui.tui.words import size_text


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for; an empty name is made up, 0 leaves the size to the settings."""

    name: str
    memory_mib: int


class SizePicker(Static, can_focus=True):
    """One of the sizes that exist; left and right, or a click, choose."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h,minus", "step(-1)", "smaller", show=False),
        Binding("right,l,plus,space", "step(1)", "larger", show=False),
        Binding("enter", "screen.create", "create", show=False),
    ]

    class Changed(Message):
        """Another size was chosen."""

    def __init__(self, memory_mib: int, *, id: str | None = None) -> None:
        super().__init__(_size_label(memory_mib), id=id, markup=False)
        self.memory_mib = memory_mib

    def on_click(self) -> None:
        self.action_step(1)

    def action_step(self, by: int) -> None:
        sizes = MEMORY_SIZES_MIB
        self.memory_mib = sizes[(sizes.index(self.memory_mib) + by) % len(sizes)]
        self.update(_size_label(self.memory_mib))
        self.post_message(self.Changed())


class CreateScreen(ModalScreen[Wish | None]):
    """Asks for a new sandbox; enter makes it from any field.

    Args:
        context: Where it will run.
        image: What the settings choose; its size counts then, unless a size is picked.
        memory_mib: The size of the settings, 0 for the default.
        egress_connector: The connector of the settings, empty for none.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel"),
        Binding("ctrl+s", "create", "create", show=False),
    ]

    def __init__(self, context: Context, *, image: str, memory_mib: int, egress_connector: str) -> None:
        super().__init__()
        self._target = context
        self._image = image
        self._default_mib = memory_mib if memory_mib in MEMORY_SIZES_MIB else DEFAULT_MEMORY_MIB
        self._network = _network_words(context, egress_connector)

    def compose(self) -> ComposeResult:
        with Vertical(id="create", classes="dialog") as dialog:
            dialog.border_title = "New sandbox"
            dialog.border_subtitle = "enter makes it · esc cancels"
            yield Static("Name", classes="label", markup=False)
            yield Input(placeholder="empty: one is made up", id="create-name", compact=True, max_length=MAX_NAME_LENGTH)
            yield Static("Size", classes="label", markup=False)
            yield SizePicker(self._default_mib, id="create-size")
            yield Static("Network", classes="label", markup=False)
            yield Static(self._network, markup=False, id="create-network")
            yield Static("", markup=False, id="create-cli")
            with Horizontal(id="create-buttons"):
                yield Button("Create", id="create-yes", compact=True)
                yield Button("Cancel", id="create-no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#create-name", Input).focus()
        self._say()

    @on(Input.Changed)
    @on(SizePicker.Changed)
    def changed(self) -> None:
        """Keep the line that does the same up to date."""
        self._say()

    @on(Input.Submitted)
    def submitted(self) -> None:
        """Enter in the name makes it."""
        self.action_create()

    @on(Button.Pressed)
    def pressed(self, event: Button.Pressed) -> None:
        """Create, or leave."""
        if event.button.id == "create-yes":
            self.action_create()
        else:
            self.dismiss(None)

    def action_create(self) -> None:
        if not self._problem():
            self.dismiss(Wish(self._wanted_name(), self._memory_mib()))

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _wanted_name(self) -> str:
        return self.query_one("#create-name", Input).value.strip()

    def _memory_mib(self) -> int:
        picked = self.query_one(SizePicker).memory_mib
        # The image of the settings has its own size; only another pick overrules it.
        return 0 if self._image and picked == self._default_mib else picked

    def _problem(self) -> str:
        if not self._wanted_name():
            return ""
        try:
            check_name(self._wanted_name())
        except UsageError as exc:
            return f"{exc.message}: {exc.hint}"
        return ""

    def _say(self) -> None:
        problem = self._problem()
        size = f" --memory {self._memory_mib()}" if self._memory_mib() else ""
        name = f" {self._wanted_name()}" if self._wanted_name() else ""
        line = self.query_one("#create-cli", Static)
        line.update(problem or f"$ sbx create{name}{size}")
        line.set_class(bool(problem), "problem")
        self.query_one("#create-yes", Button).disabled = bool(problem)


def _size_label(memory_mib: int) -> str:
    cpus = VCPUS_BY_MEMORY_MIB[memory_mib]
    return f"‹ {size_text(memory_mib)}, up to {cpus} cpu{'s' if cpus > 1 else ''} ›"


def _network_words(context: Context, egress_connector: str) -> str:
    connectors = (egress_connector,) if egress_connector and context.kind is ContextKind.AWS else ()
    try:
        network = check_network("", context.kind, connectors)
    except PolicyDenied as exc:
        return exc.message
    return {
        "none": "none: it reaches nothing outside itself",
        "managed": "managed: the image's own egress, which reaches the internet",
        "connector": "what the egress connector of your settings allows",
    }.get(network, network)

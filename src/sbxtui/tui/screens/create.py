"""Making a sandbox: name, size, network, idle time; what cannot be chosen is said. Enter makes it from any field."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from sbxtui.core.errors import SbxError
from sbxtui.core.model import DEFAULT_MEMORY_MIB, MEMORY_SIZES_MIB, VCPUS_BY_MEMORY_MIB, Context, ContextKind
from sbxtui.core.names import MAX_NAME_LENGTH, check_name
from sbxtui.core.sizing import check_network
from sbxtui.core.text import harmless_line
from sbxtui.tui.enduring import Enduring
from sbxtui.tui.widgets.picker import Picker
from sbxtui.tui.words import size_text

_ALLOW = "allow"
# What a local sandbox may be asked to have at the least.
_TIERS = {
    "gvisor": "gVisor: a kernel of its own in user space",
    "bubblewrap": "namespaces: on this machine's kernel",
}
_EXAMPLE_RULE = "example.com:443"


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for; an empty name is made up, 0 and empty leave the rest to the settings."""

    name: str
    memory_mib: int = 0
    network: str = ""
    idle_s: int = 0
    isolation: str = ""


@dataclass(frozen=True, slots=True)
class Ground:
    """What the form stands on: where, how isolated, and what the settings choose."""

    context: Context
    isolation: str
    image: str
    memory_mib: int
    egress_connector: str

    @property
    def connectors(self) -> tuple[str, ...]:
        """The connector a launch here would get by itself."""
        is_used = self.egress_connector and self.context.kind is ContextKind.AWS
        return (self.egress_connector,) if is_used else ()


class CreateScreen(Enduring, ModalScreen[Wish | None]):
    """Asks for a new sandbox."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel"),
        Binding("ctrl+s", "create", "create", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self._ground = ground
        self._default_mib = ground.memory_mib if ground.memory_mib in MEMORY_SIZES_MIB else DEFAULT_MEMORY_MIB
        # Made here, not in compose: it may be told as soon as this is the screen, before its widgets are there.
        self._isolation = Picker(isolation_choices(ground), id="create-isolation")

    def compose(self) -> ComposeResult:
        ground = self._ground
        sizes = [(str(mib), _size_label(mib)) for mib in MEMORY_SIZES_MIB]
        with Vertical(id="create", classes="dialog") as dialog:
            dialog.border_title = Content(f"New sandbox in {harmless_line(ground.context.name)}")
            dialog.border_subtitle = "enter makes it · tab next field · esc cancels"
            yield _Label("Name")
            yield Input(placeholder="empty: one is made up", id="create-name", compact=True, max_length=MAX_NAME_LENGTH)
            yield _Label("Size")
            yield Picker(sizes, str(self._default_mib), id="create-size")
            yield _Label("Network")
            yield Picker(network_choices(ground), id="create-network")
            yield Input(placeholder=_EXAMPLE_RULE, id="create-allow", compact=True)
            yield _Label("When idle")
            yield Picker(_idle_choices(ground.context), id="create-idle")
            yield _Label("Isolation")
            yield self._isolation
            yield Static("", markup=False, id="create-cli")
            with Horizontal(id="create-buttons"):
                yield Button("Create", id="create-yes", compact=True)
                yield Button("Cancel", id="create-no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#create-name", Input).focus()
        self._say()

    def tell_isolation(self, isolation: str) -> None:
        """Say how it will be isolated, which is known only once the cloud runs."""
        self._isolation.call_choice("", _isolation_words(isolation))

    @on(Input.Changed)
    @on(Picker.Changed)
    def changed(self) -> None:
        """Keep the line that does the same up to date."""
        self._say()

    @on(Input.Submitted)
    def submitted(self) -> None:
        """Enter in a line makes it."""
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
            self.dismiss(self._wish())

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _value(self, picker: str) -> str:
        return self.query_one(f"#create-{picker}", Picker).value

    def _wish(self) -> Wish:
        picked = int(self._value("size"))
        network = self._value("network")
        if network == _ALLOW:
            network = f"allow={self.query_one('#create-allow', Input).value.strip()}"
        return Wish(
            name=self.query_one("#create-name", Input).value.strip(),
            # The image of the settings has its own size; only another pick overrules it.
            memory_mib=0 if self._ground.image and picked == self._default_mib else picked,
            network=network,
            idle_s=int(self._value("idle")),
            isolation=self._value("isolation"),
        )

    def _problem(self) -> str:
        wish = self._wish()
        try:
            if wish.name:
                check_name(wish.name)
            check_network(wish.network, self._ground.context.kind, self._ground.connectors)
        except SbxError as exc:
            return f"{exc.message}: {exc.hint}"
        return ""

    def _say(self) -> None:
        self.query_one("#create-allow").display = self._value("network") == _ALLOW
        problem = self._problem()
        line = self.query_one("#create-cli", Static)
        line.update(harmless_line(problem) or f"$ {command_line(self._wish())}")
        line.set_class(bool(problem), "problem")
        self.query_one("#create-yes", Button).disabled = bool(problem)


class _Label(Static):
    def __init__(self, text: str) -> None:
        super().__init__(text, classes="label", markup=False)


def _isolation_words(isolation: str) -> str:
    return harmless_line(isolation) or "told once the local cloud runs"


def isolation_choices(ground: Ground) -> list[tuple[str, str]]:
    """What can be asked for here, what a sandbox gets by itself first."""
    by_itself = [("", _isolation_words(ground.isolation))]
    if ground.context.kind is ContextKind.AWS:
        return by_itself
    return [*by_itself, *((tier, f"{words}, or none is made") for tier, words in _TIERS.items())]


def command_line(wish: Wish) -> str:
    """The command line that makes the same sandbox."""
    words = ["sbx", "create", *([wish.name] if wish.name else [])]
    words += ["--memory", str(wish.memory_mib)] if wish.memory_mib else []
    words += ["--network", wish.network] if wish.network else []
    words += ["--idle", str(wish.idle_s)] if wish.idle_s else []
    words += ["--isolation", wish.isolation] if wish.isolation else []
    return shlex.join(words)


def network_choices(ground: Ground) -> list[tuple[str, str]]:
    """What can be chosen here, the default first; what the context would refuse is left out."""
    effective: dict[str, str] = {}
    for wanted in ("", "none", "internet", f"allow={_EXAMPLE_RULE}"):
        try:
            network = check_network(wanted, ground.context.kind, ground.connectors)
        except SbxError:
            continue
        effective.setdefault(network, wanted)
    return [
        (_ALLOW if wanted.startswith("allow=") else wanted, _network_words(network))
        for network, wanted in effective.items()
    ] or [("", "as the settings say")]


def _network_words(network: str) -> str:
    if network.startswith("allow="):
        return "allow: only these, HOST:PORT,…"
    return {
        "none": "none: it reaches nothing outside itself",
        "internet": "internet: it reaches everything",
        "managed": "managed: the image's own egress, which reaches the internet",
        "connector": "what the egress connector of your settings allows",
    }.get(network, network)


def _idle_choices(context: Context) -> list[tuple[str, str]]:
    default = "suspended after 15 min" if context.kind is ContextKind.AWS else "it stays up"
    return [("0", default), ("300", "suspended after 5 min"), ("3600", "suspended after 1 h")]


def _size_label(memory_mib: int) -> str:
    cpus = VCPUS_BY_MEMORY_MIB[memory_mib]
    return f"{size_text(memory_mib)}, up to {cpus} cpu{'s' if cpus > 1 else ''}"

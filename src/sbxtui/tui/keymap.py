"""Which key does what, where: the registry of actions with the person's own keys laid over it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from textual.binding import Binding
from textual.keys import _character_to_key

from sbxtui.settings import Settings
from sbxtui.tui.actions import EVERYWHERE, LIST, SANDBOXES, Action, shown_key

# Scopes that are active together and do not shadow one another: a key may mean one thing in all of them.
_TOGETHER = frozenset({EVERYWHERE, SANDBOXES, LIST})


class Keymap:
    """The actions with their keys as they are now.

    Args:
        actions: The whole registry.
        own_keys: Action id → keys, as `[keys]` of config.toml has them.
        is_read_only: Leaves out everything that changes more than the screen.

    Attributes:
        problems: What of `own_keys` is not followed, in sentences.
    """

    def __init__(
        self, actions: Iterable[Action], own_keys: Mapping[str, str] | None = None, *, is_read_only: bool = False
    ) -> None:
        self.is_read_only = is_read_only
        self.problems: list[str] = []
        self.actions = [one for one in actions if not (is_read_only and one.changes)]
        known = {one.id for one in actions}
        for action_id, keys in (own_keys or {}).items():
            if action_id in known:
                self._lay_over(action_id, keys)
            else:
                self.problems.append(f"[keys] names `{action_id}`, which is no action")
        self._by_id = {one.id: one for one in self.actions}
        self._here: dict[tuple[tuple[str, ...], bool], list[Action]] = {}

    def get(self, action_id: str) -> Action | None:
        """The action of an id; None when there is none here."""
        return self._by_id.get(action_id)

    def key_to(self, action_id: str) -> str:
        """The key of an action as a person reads it; empty when there is none here."""
        action = self.get(action_id)
        return action.shown_key if action is not None else ""

    def here(self, scopes: Sequence[str], *, is_typing: bool = False) -> list[Action]:
        """The actions that work where `scopes` (nearest first) are, with the keys left to them: each key has one."""
        place = (tuple(scopes), is_typing)
        if place not in self._here:
            self._here[place] = self._find(scopes, is_typing=is_typing)
        return self._here[place]

    def _find(self, scopes: Sequence[str], *, is_typing: bool) -> list[Action]:
        taken: set[str] = set()
        found: list[Action] = []
        for scope in (*scopes, EVERYWHERE):
            is_closed = is_typing and scope in _TOGETHER
            mine = [one for one in self.actions if one.scope == scope and (one.is_typed or not is_closed)]
            for action in mine:
                if keys := [key for key in action.keys.split(",") if key not in taken]:
                    found.append(replace(action, keys=",".join(keys)))
            taken |= {key for action in mine for key in action.keys.split(",")}
        return found

    def bindings(self) -> list[Binding]:
        """One binding per key of each action, which names both.

        They have priority: a key then acts before the next one is looked at, so that what is typed fast after `e` or
        `/` goes to the line it opens and is never taken for actions.
        """
        return [
            Binding(key, f"do('{one.id}', '{key}')", one.label, key_display=shown_key(key), priority=True)
            for one in self.actions
            if not one.is_native
            for key in one.keys.split(",")
        ]

    def _lay_over(self, action_id: str, keys: str) -> None:
        wanted = ",".join(_key_name(key.strip()) for key in keys.split(",") if key.strip())
        at = next((at for at, one in enumerate(self.actions) if one.id == action_id), None)
        if at is None:
            return
        action = self.actions[at]
        if not wanted or action.is_native:
            self.problems.append(f"[keys] `{action_id}` keeps its key {action.shown_key}")
            return
        rivals = [
            one for one in self.actions if one.id != action_id and _meet(one, action) and _share(one.keys, wanted)
        ]
        if rivals:
            rival = rivals[0]
            self.problems.append(f"[keys] `{action_id}` keeps {action.shown_key}: {keys} already is `{rival.id}`")
            return
        self.actions[at] = replace(action, keys=wanted)


def keymap_of(actions: Iterable[Action], settings: Settings) -> Keymap:
    """Actions with the keys and within the bounds that settings say."""
    return Keymap(actions, settings.keys, is_read_only=settings.ui.read_only)


def footer_actions(width: int, here: Sequence[Action]) -> list[Action]:
    """The actions a footer of `width` columns has room for: those of where the focus is, then those of everywhere.

    The way out is always among them, and help where both have room.
    """
    wanted = sorted((one for one in here if one.rank), key=lambda one: (one.scope in _TOGETHER, one.rank))
    ways_out = [one for one in wanted if one.id == "quit"] or [one for one in wanted if one.id == "back"]
    room = width - 1 - sum(_width(one) for one in ways_out)
    for action in wanted:
        if action.id == "help" and _width(action) <= room:
            ways_out.insert(0, action)
            room -= _width(action)
    shown: list[Action] = []
    for action in wanted:
        if action in ways_out:
            continue
        room -= _width(action)
        if room < 0:
            break
        shown.append(action)
    return shown + ways_out


def _meet(one: Action, other: Action) -> bool:
    return one.scope == other.scope or {one.scope, other.scope} <= _TOGETHER


def _share(keys: str, others: str) -> bool:
    return bool(set(keys.split(",")) & set(others.split(",")))


def _key_name(key: str) -> str:
    """Textual's name of a key a person wrote: `?` is `question_mark`."""
    if len(key) == 1 and not key.isalnum():
        return _character_to_key(key)
    return key


def _width(action: Action) -> int:
    return len(action.shown_key) + len(action.label) + 3

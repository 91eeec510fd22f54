"""What widgets that draw their own lines share: component styles, resolved once for as long as the theme lasts."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual.scroll_view import ScrollView


class StyledView(ScrollView):
    """A scrolling view whose component classes for tones are called `PREFIX--NAME`."""

    TONE_PREFIX: ClassVar[str] = ""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._style_cache: dict[str, Style] = {}

    def notify_style_update(self) -> None:
        """Textual tells that colours may be other ones now."""
        super().notify_style_update()
        self._style_cache.clear()

    def _tone(self, name: str) -> Style:
        """Only the colour and weight of a component style: the background is the row's."""
        key = f"tone {name}"
        if key not in self._style_cache:
            style = self.get_component_rich_style(f"{self.TONE_PREFIX}--{name}", partial=True)
            self._style_cache[key] = Style(color=style.color, bold=style.bold)
        return self._style_cache[key]

    def _style(self, name: str) -> Style:
        """A component style with its background, or the view's own for `base`; resolving one costs more than a row."""
        if name not in self._style_cache:
            self._style_cache[name] = self.rich_style if name == "base" else self.get_component_rich_style(name)
        return self._style_cache[name]

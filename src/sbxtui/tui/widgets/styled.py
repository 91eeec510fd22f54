"""What widgets that draw their own lines share: component styles, resolved once for as long as the theme lasts."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual.css.styles import RenderStyles
from textual.dom import DOMNode
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget


class StyledView(ScrollView):
    """A scrolling view whose component classes for tones are called `PREFIX--NAME`."""

    TONE_PREFIX: ClassVar[str] = ""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._style_cache: dict[str, Style] = {}

    @classmethod
    def _get_component_classes(cls) -> frozenset[str]:  # type: ignore[override]  # textual caches its own
        """None for Textual, which would work out all of them each time anything of the view's own style may change."""
        return frozenset()

    def get_component_styles(self, *names: str) -> RenderStyles:
        """As Textual's; worked out when they are asked for first."""
        for name in names:
            if name not in self._component_styles:
                component = DOMNode(classes=name)
                component._attach(self)
                self.app.stylesheet.apply(component, animate=False)
                self._component_styles[name] = component.styles
        return super().get_component_styles(*names)

    def notify_style_update(self) -> None:
        """Textual tells that colours may be other ones now."""
        super().notify_style_update()
        self._component_styles.clear()
        self._style_cache.clear()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """As Textual's, which puts each line of whatever widget together from its frame, and keeps it: a flood pays
        more for that than for its lines.
        """
        styles = self.styles
        if styles.gutter or styles.outline.top[0] or styles.tint.a or self.opacity != 1.0:
            return super().render_lines(crop)
        background, filters = self.background_colors[1], self.get_line_filters()
        strips = [self.render_line(y) for y in crop.line_range]
        for line_filter in filters:
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        left, right = crop.column_span
        return [strip.crop(left, right) for strip in strips]

    def _grow(self, size: Size) -> None:
        """Have another size to scroll in. Textual would lay out the whole screen anew, each time a line is added."""
        had = self.virtual_size
        if self.show_vertical_scrollbar and had.width == size.width and size.height > self.container_size.height:
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)
        else:
            self.virtual_size = size

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

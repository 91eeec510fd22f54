"""The themes: dark, light, high contrast, the terminal's own, and mono, which needs no colour at all."""

from __future__ import annotations

from dataclasses import replace

from textual.theme import Theme

# Every text colour of our own stands on `background` or `panel` with a contrast of at least 4.5:1; a test holds this.
TONES = ("good", "busy", "calm", "gone", "warn", "muted", "key")


def _theme(name: str, *, dark: bool, background: str, panel: str, foreground: str, cursor: str, **tones: str) -> Theme:
    return Theme(
        name=f"sbx-{name}",
        primary=tones["key"],
        secondary=tones["calm"],
        accent=tones["key"],
        warning=tones["warn"],
        error=tones["warn"],
        success=tones["good"],
        foreground=foreground,
        background=background,
        surface=background,
        panel=panel,
        dark=dark,
        text_alpha=1.0,
        variables={
            **{f"sbx-{tone}": tones[tone] for tone in TONES},
            "sbx-cursor": cursor,
            "sbx-line": tones["line"],
            "border": tones["line"],
            "border-blurred": tones["line"],
            "block-cursor-background": cursor,
            "block-cursor-foreground": foreground,
            "block-cursor-text-style": "bold",
            "input-cursor-background": foreground,
            "input-cursor-foreground": background,
            "input-selection-background": cursor,
            "scrollbar": tones["line"],
            "scrollbar-background": background,
            "scrollbar-corner-color": background,
            "footer-key-foreground": tones["key"],
        },
    )


# Whatever colours the terminal has; how well they are read is the terminal's affair, and the cursor is reversed.
_TERMINAL = replace(
    _theme(
        "terminal",
        dark=True,
        background="ansi_default",
        panel="ansi_default",
        foreground="ansi_default",
        cursor="ansi_default",
        good="ansi_green",
        busy="ansi_yellow",
        calm="ansi_blue",
        gone="ansi_default",
        warn="ansi_red",
        muted="ansi_default",
        key="ansi_cyan",
        line="ansi_default",
    ),
    ansi=True,
    boost="ansi_default",
)
# Textual's own styles speak of them where the theme is of this kind.
_TERMINAL.variables.update({"ansi-background": "ansi_default", "ansi-foreground": "ansi_default"})
THEMES = (
    _theme(
        "dark",
        dark=True,
        background="#12161c",
        panel="#1b212a",
        foreground="#d8dee6",
        cursor="#2b3a52",
        good="#7fd18b",
        busy="#e3c26b",
        calm="#8fb7f0",
        gone="#a3adb9",
        warn="#ff9a7d",
        muted="#9ba6b4",
        key="#7fc7e8",
        line="#3a4554",
    ),
    _theme(
        "light",
        dark=False,
        background="#fbfbf8",
        panel="#eeeeea",
        foreground="#1d2329",
        cursor="#cfe0f5",
        good="#17672f",
        busy="#7a5200",
        calm="#1c5399",
        gone="#545d66",
        warn="#a8320f",
        muted="#525b65",
        key="#0b5a83",
        line="#b3b9bf",
    ),
    _theme(
        "contrast",
        dark=True,
        background="#000000",
        panel="#000000",
        foreground="#ffffff",
        cursor="#00449c",
        good="#5cff7a",
        busy="#ffe14d",
        calm="#8fd0ff",
        gone="#e0e0e0",
        warn="#ffb199",
        muted="#e0e0e0",
        key="#66e6ff",
        line="#ffffff",
    ),
    _TERMINAL,
    _theme(
        "mono",
        dark=True,
        background="#000000",
        panel="#000000",
        foreground="#e6e6e6",
        cursor="#505050",
        good="#e6e6e6",
        busy="#e6e6e6",
        calm="#e6e6e6",
        gone="#c4c4c4",
        warn="#ffffff",
        muted="#c4c4c4",
        key="#ffffff",
        line="#8a8a8a",
    ),
)
# Pygments styles for file contents; on mono there are none.
HIGHLIGHTING = {"sbx-dark": "github-dark", "sbx-light": "default", "sbx-contrast": "github-dark"}
THEME_NAMES = tuple(theme.name for theme in THEMES)
DEFAULT_THEME = THEME_NAMES[0]
MONO_THEME = THEME_NAMES[-1]
# Their cursor is told by reversing it.
REVERSING_THEMES = (_TERMINAL.name, MONO_THEME)


def next_theme(name: str) -> str:
    """The theme after `name`; the first after a foreign one."""
    at = THEME_NAMES.index(name) if name in THEME_NAMES else -1
    return THEME_NAMES[(at + 1) % len(THEME_NAMES)]

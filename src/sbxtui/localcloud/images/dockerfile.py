"""A Dockerfile as instructions: lines joined, comments left out, and variables put in where Docker does.

Only what an image here can be made of is taken; anything else is an error that names its line, and is never skipped.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KNOWN = frozenset(
    {
        *("FROM", "RUN", "COPY", "ADD", "ENV", "ARG", "WORKDIR", "USER", "EXPOSE", "CMD", "ENTRYPOINT", "SHELL"),
        *("LABEL", "MAINTAINER", "STOPSIGNAL"),
    }
)
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*[a-z]+\s*=", re.IGNORECASE)
_VARIABLE = re.compile(r"\\(\$)|\$(?:\{([A-Za-z_]\w*)(?:(:?[-+])([^}]*))?\}|([A-Za-z_]\w*))")
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?")


class DockerfileError(ValueError):
    """It is no Dockerfile that can be built here; the words name the line."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its keyword in capitals, and the rest as written, lines joined."""

    line: int
    keyword: str
    text: str

    def flags(self) -> tuple[dict[str, str], str]:
        """The leading `--name=value` of COPY, ADD and their like, and what is behind them."""
        found: dict[str, str] = {}
        rest = self.text
        while match := _FLAG.match(rest):
            found[match[1]] = match[2] or ""
            rest = rest[match.end() :].lstrip()
        return found, rest

    def words(self) -> list[str]:
        """The JSON form's strings, else the words as a shell splits them.

        Raises:
            DockerfileError: They do not end, as with a quote that is open.
        """
        text = self.flags()[1]
        if (listed := json_form(text)) is not None:
            return listed
        try:
            return shlex.split(text)
        except ValueError as exc:
            raise DockerfileError(f"line {self.line}: {exc}") from exc

    def pairs(self) -> list[tuple[str, str]]:
        """Keys and values of ENV and LABEL; the old form `ENV KEY VALUE`, too.

        Raises:
            DockerfileError: A word has no value.
        """
        words = self.words()
        if words and "=" not in words[0]:
            key, _, value = self.text.partition(" ")
            return [(key, value.strip())]
        for word in words:
            if "=" not in word:
                raise DockerfileError(f"line {self.line}: {word} has no value")
        return [(key, value) for key, _, value in (word.partition("=") for word in words)]


def parse_dockerfile(text: str) -> list[Instruction]:
    """The instructions in order; the first is FROM, or ARGs before it.

    Raises:
        DockerfileError: One is unknown, or there is no FROM, or more than one.
    """
    found = list(_joined(text))
    for one in found:
        if one.keyword not in KNOWN:
            raise DockerfileError(f"line {one.line}: {one.keyword} is not supported")
        if "<<" in one.text and one.keyword in ("RUN", "COPY"):
            raise DockerfileError(f"line {one.line}: here-documents are not supported")
    froms = [index for index, one in enumerate(found) if one.keyword == "FROM"]
    if len(froms) != 1 or any(one.keyword != "ARG" for one in found[: froms[0]]):
        raise DockerfileError("there must be one FROM, with nothing but ARG before it; stages are not supported")
    return found


def substituted(text: str, variables: Mapping[str, str]) -> str:
    r"""A text with `$NAME`, `${NAME}`, `${NAME:-word}` and `${NAME:+word}` put in; `\$` stays a dollar."""

    def put_in(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        name = match[2] or match[5]
        value, how = variables.get(name), match[3] or ""
        is_set = value is not None and (value != "" or not how.startswith(":"))
        if how.endswith("+"):
            return match[4] if is_set else ""
        return (value or "") if is_set or not how else match[4]

    return _VARIABLE.sub(put_in, text)


def json_form(text: str) -> list[str] | None:
    """The strings of a JSON list; None: it is none."""
    if not text.startswith("["):
        return None
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return listed if isinstance(listed, list) and all(isinstance(item, str) for item in listed) else None


def command_of(instruction: Instruction, shell: Sequence[str]) -> tuple[str, ...]:
    """What CMD, ENTRYPOINT and RUN run: the JSON form as it is, else the line in the shell."""
    text = instruction.flags()[1]
    listed = json_form(text)
    return tuple(listed) if listed is not None else (*shell, text)


def _joined(text: str) -> list[Instruction]:
    lines = text.lstrip("\ufeff").splitlines()
    escape = _escape_of(lines)
    found: list[Instruction] = []
    begun, parts = 0, []
    for number, line in enumerate(lines, start=1):
        if line.strip().startswith("#") or not line.strip():
            continue
        begun = begun or number
        body = line.rstrip()
        if body.endswith(escape):
            parts.append(body[: -len(escape)])
            continue
        parts.append(body)
        found.append(_instruction(begun, "".join(parts).strip()))
        begun, parts = 0, []
    if parts:
        found.append(_instruction(begun, "".join(parts).strip()))
    return found


def _escape_of(lines: Sequence[str]) -> str:
    for line in lines:
        if match := _ESCAPE.fullmatch(line.strip()):
            return match[1]
        if not _DIRECTIVE.match(line.strip()):
            break
    return "\\"


def _instruction(line: int, text: str) -> Instruction:
    keyword, _, rest = text.partition(" ")
    if not rest.strip():
        raise DockerfileError(f"line {line}: {keyword} says nothing")
    return Instruction(line, keyword.upper(), rest.strip())

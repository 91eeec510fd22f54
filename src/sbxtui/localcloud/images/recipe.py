"""What a Dockerfile asks for, step by step: pure, so that a build knows what it has done before without doing it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sbxtui.localcloud.images.dockerfile import (
    DockerfileError,
    Instruction,
    command_of,
    parse_dockerfile,
    substituted,
)

# Bases that stand for this machine's userland with the bundled guest. Others are those that somebody made known.
BASES = ("sbx-base", "public.ecr.aws/lambda/microvms:al2023-minimal", "public.ecr.aws/lambda/microvms:al2023")
_SHELL = ("/bin/sh", "-c")
_COPY_FLAGS = {"chmod"}
_REMOTE = ("http://", "https://", "git@", "git://")


@dataclass(frozen=True, slots=True)
class Run:
    """A command to run in the sandbox."""

    line: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    user: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Files of the archive to put to `target`, which is a folder where it ends with `/`. `mode` is octal, or empty."""

    line: int
    sources: tuple[str, ...]
    target: str
    mode: str


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """A working folder that must be there."""

    line: int
    path: str


Step = Run | Copy | MakeFolder


@dataclass(frozen=True, slots=True)
class Recipe:
    """All steps, and what the image runs in the end. `base` is what it is made from, as FROM names it."""

    base: str
    steps: tuple[Step, ...]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str
    user: str


def recipe_of(text: str, bases: Collection[str] = ()) -> Recipe:
    """Read a Dockerfile. `bases` are names that FROM may have beside `BASES`.

    Raises:
        DockerfileError: It asks for what cannot be done here; the words name the line.
    """
    stage = _Stage(bases)
    for instruction in parse_dockerfile(text):
        stage.take(instruction)
    return stage.recipe()


class _Stage:
    """The state between two instructions."""

    def __init__(self, bases: Collection[str]) -> None:
        self._bases = (*BASES, *bases)
        self._base = ""
        self._env: dict[str, str] = {}
        self._args: dict[str, str] = {}
        self._workdir = "/work"
        self._user = ""
        self._shell: tuple[str, ...] = _SHELL
        self._entrypoint: tuple[str, ...] = ()
        self._command: tuple[str, ...] = ()
        self._steps: list[Step] = []

    def recipe(self) -> Recipe:
        """As it stands."""
        argv = (*self._entrypoint, *self._command)
        return Recipe(self._base, tuple(self._steps), argv, self._env, self._workdir, self._user)

    def take(self, one: Instruction) -> None:
        """Apply one instruction; EXPOSE, LABEL and their like change nothing that runs."""
        takers: dict[str, Callable[[Instruction], None]] = {
            "FROM": self._from,
            "ARG": self._arg,
            "ENV": self._set_env,
            "WORKDIR": self._set_workdir,
            "RUN": self._run,
            "COPY": self._copy,
            "ADD": self._copy,
        }
        if one.keyword in takers:
            takers[one.keyword](one)
            return
        match one.keyword:
            case "USER":
                self._user = self._put_in(one.text)
            case "SHELL":
                self._shell = command_of(one, ())
            case "CMD":
                self._command = command_of(one, self._shell)
            case "ENTRYPOINT":
                # As with Docker, an entry point takes away what a base has as its command.
                self._entrypoint, self._command = command_of(one, self._shell), ()

    def _set_env(self, one: Instruction) -> None:
        for key, value in one.pairs():
            self._env[key] = self._put_in(value)

    def _set_workdir(self, one: Instruction) -> None:
        self._workdir = posixpath.normpath(posixpath.join(self._workdir, self._put_in(one.text)))
        self._steps.append(MakeFolder(one.line, self._workdir))

    def _from(self, one: Instruction) -> None:
        flags, rest = one.flags()
        base = self._base = self._put_in(rest.split()[0])
        if base not in self._bases or flags.keys() - {"platform"}:
            raise DockerfileError(
                f"line {one.line}: the base {base} is not to be had here; take one of {', '.join(self._bases)}, or "
                f"make a root of yours known: sbx local base add {base} FOLDER"
            )

    def _arg(self, one: Instruction) -> None:
        for word in one.words():
            name, _, value = word.partition("=")
            self._args[name] = self._put_in(value)

    def _run(self, one: Instruction) -> None:
        flags, _ = one.flags()
        if flags:
            raise DockerfileError(f"line {one.line}: RUN --{next(iter(flags))} is not supported")
        argv = command_of(one, self._shell)
        # What a shell puts in is its own affair.
        self._steps.append(Run(one.line, argv, {**self._args, **self._env}, self._workdir, self._user))

    def _copy(self, one: Instruction) -> None:
        flags, _ = one.flags()
        if unknown := flags.keys() - _COPY_FLAGS - {"chown"}:
            raise DockerfileError(f"line {one.line}: {one.keyword} --{sorted(unknown)[0]} is not supported")
        words = [self._put_in(word) for word in one.words()]
        if len(words) < 2:
            raise DockerfileError(f"line {one.line}: {one.keyword} needs a source and a target")
        *sources, target = words
        if remote := [source for source in sources if source.startswith(_REMOTE)]:
            raise DockerfileError(f"line {one.line}: {remote[0]} is not in the archive: RUN can fetch it")
        if len(sources) > 1 and not target.endswith("/"):
            raise DockerfileError(f"line {one.line}: with several sources the target must end with /")
        is_folder = target.endswith("/") or target in (".", "..")
        path = posixpath.normpath(posixpath.join(self._workdir, target))
        self._steps.append(Copy(one.line, tuple(sources), path + ("/" if is_folder else ""), flags.get("chmod", "")))

    def _put_in(self, text: str) -> str:
        return substituted(text, {**self._args, **self._env})


def words_of(step: Step) -> str:
    """A step in the words of a build's log."""
    match step:
        case Run():
            return f"RUN {_line(step.argv)}"
        case Copy():
            return f"COPY {' '.join(step.sources)} {step.target}"
        case MakeFolder():
            return f"WORKDIR {step.path}"


def _line(argv: Sequence[str]) -> str:
    return argv[-1] if tuple(argv[:-1]) == _SHELL else str(list(argv))

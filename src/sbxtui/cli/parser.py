"""Every verb and flag of `sbx`. Knows argparse only: verbs name their code as `module:function`, imported when run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sbxtui._version import __version__
from sbxtui.cli import habits
from sbxtui.cli.adder import Adder, Parser, add_global_flags
from sbxtui.cli.mcpverbs import with_serve
from sbxtui.cli.startverb import with_start
from sbxtui.cli.verbs import add_verbs
from sbxtui.core.errors import UsageError

# Verbs whose line ends in the words of a command.
_TAKES_COMMAND = frozenset({"exec", "run"})

# Their exit code is a command's own, so that sbx's own failures are 125 (as with docker and env).
COMMAND_VERBS = _TAKES_COMMAND | {"attach", "shell"}

# A command's words are cut off before argparse sees them: they may look like our flags.
_GLOBAL_VALUE_FLAGS = frozenset({"--context", "-c", "--region", "--profile", "--isolation", "-f", "--file"})


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Returns:
        A namespace with `handler` (empty: no verb was given), the global flags and the verb's own; for `exec` and
        `run` also `command`, the words of the command.

    Raises:
        UsageError: The line cannot be understood.
        SystemExit: `--help` or `--version` was printed.
    """
    own, command = _split_command(_with_help_asked(_with_sort_joined(with_serve(argv, _verb_index(argv)))))
    verb = verb_of(own)
    own = habits.spelled_out(verb, own)
    habits.refuse_other_meaning(verb, [*own, *command[:1]])
    try:
        args = _parse_own(own)
    except UsageError as exc:
        exc.hint = habits.hint(verb, own, exc.message) or exc.hint
        raise
    args.command = command
    return args


def _parse_own(words: Sequence[str]) -> argparse.Namespace:
    words = with_start(words, _verb_index(words), _GLOBAL_VALUE_FLAGS)
    args, rest = _parser_of(words).parse_known_args(words)
    if rest:
        name = f"sbx {args.verb}" if args.verb else "sbx"
        raise UsageError(f"`{name}` does not know what to do with `{' '.join(rest)}`", hint=f"see `{name} --help`")
    return args


def own_words(argv: Sequence[str]) -> list[str]:
    """The words that are sbx's, without those of a command to run."""
    return _split_command(argv)[0]


def _with_sort_joined(argv: Sequence[str]) -> list[str]:
    """`--sort -age` as `--sort=-age`: argparse takes a value with a minus for a flag."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] == "--sort" and word.startswith("-") and word != "--":
            words[-1] = f"--sort={word}"
        else:
            words.append(word)
    return words


def _with_help_asked(argv: Sequence[str]) -> list[str]:
    """`help VERB` as `VERB --help`."""
    at = _verb_index(argv)
    if at is None or argv[at] != "help":
        return list(argv)
    return [*argv[:at], *(word for word in argv[at + 1 :] if word != "help"), "--help"]


def verb_of(argv: Sequence[str]) -> str:
    """The verb of a line, even of one that cannot be parsed; empty when it has none."""
    at = _verb_index(argv)
    return "" if at is None else argv[at]


def program() -> argparse.ArgumentParser:
    """The parser of the whole program, for completion."""
    return _build()


def verbs() -> dict[str, argparse.ArgumentParser]:
    """Every verb with its own parser, for completion and documentation."""
    actions = [action for action in _build()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices)


def _split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cut the words of the command from the line of a command verb: after `--`, or after the sandbox's name."""
    verb = _verb_index(argv)
    if verb is None or argv[verb] not in _TAKES_COMMAND:
        return list(argv), []
    values = _GLOBAL_VALUE_FLAGS | _value_flags(argv[verb])
    # `run` takes no sandbox: without `--` its first word is an image ARN (as in the seed) or begins the command.
    at = verb + 1
    names_left = 1 if argv[verb] == "exec" else 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            return list(argv[:at]), list(argv[at + 1 :])
        if word.startswith("-") and word != "-":
            at += 2 if _takes_next(word, values) and not _is_flag(argv[at + 1 : at + 2]) else 1
            continue
        if names_left == 0 and not (argv[verb] == "run" and "--" in argv[at:] and word.startswith("arn:")):
            return list(argv[:at]), list(argv[at:])
        names_left = max(0, names_left - 1)
        at += 1
    return list(argv), []


def _verb_index(argv: Sequence[str]) -> int | None:
    at = 0
    while at < len(argv):
        if argv[at] in _GLOBAL_VALUE_FLAGS:
            at += 2
        elif argv[at].startswith("-"):
            at += 1
        else:
            return at
    return None


def _is_flag(words: Sequence[str]) -> bool:
    return any(word.startswith("-") and word != "-" for word in words)


def _takes_next(word: str, values: frozenset[str]) -> bool:
    """Whether the value of a flag, or of the last of some letters (`-ite`), is the next word."""
    if word.startswith("--") or word in habits.BOTH_LETTERS:
        return word in values
    first = next((at for at, letter in enumerate(word[1:], 1) if f"-{letter}" in values), None)
    return first == len(word) - 1


def _value_flags(verb: str) -> frozenset[str]:
    common = {"--cwd", "--env", "--timeout", "--user", "-u"}
    if verb == "exec":
        return frozenset(common | {"--env-file", "--workdir", "-w", "-e"})
    create = {"--image", "-i", "--role", "--memory", "-m", "--cpus", "--label", "--idle", "--max-duration"}
    create |= {"--egress-connector", "--ingress-connector", "--network", "--workdir", "-w", "--budget", "--secret"}
    return frozenset(common | create | {"--name"})


def _parser_of(line: Sequence[str]) -> Parser:
    """The parser for this line: of its verb alone where that is all it can need."""
    verb = _verb_index(line)
    # `sbx --help VERB` lists them all.
    if any(word.startswith(("-h", "--h")) for word in line[:verb]):
        return _build()
    # The dashboard is opened by no verb, and waits for none of theirs.
    return _build("tui" if verb is None else line[verb])


def _build(only: str = "") -> Parser:
    """The parser of one verb; of every verb if there is no such one, or none was named."""
    parser = Parser(
        prog="sbx",
        description="Disposable, isolated machines for code nobody has reviewed. Without a verb: the dashboard.",
        epilog="`sbx VERB --help` or `sbx help VERB` tells more of a verb.",
    )
    parser.set_defaults(handler="", verb="", context="", region="", profile="", isolation="", setup_file="")
    parser.set_defaults(json=False, quiet=False, no_input=False, debug=False, wide=False)
    parser.add_argument("--version", action="version", version=f"sbx {__version__}")
    add_global_flags(parser)
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser, title="verbs")
    add_verbs(Adder(subparsers, only=only))
    if only and only not in subparsers.choices:
        return _build()
    return parser

"""`completion bash|zsh|fish`: made from the parser, so that it cannot fall behind it."""

from __future__ import annotations

import argparse

from sbxtui.cli import parser
from sbxtui.cli.call import Call

# Verbs whose words are names of sandboxes.
_TAKES_SANDBOX = "sandbox sandboxes old source target".split()  # noqa: SIM905 - a list of words reads as words


def completion(call: Call) -> int:
    """Print the completion script of a shell."""
    verbs = parser.verbs()
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[call.args.shell](verbs)
    call.out.result({"shell": call.args.shell, "script": script})
    for line in script.splitlines():
        call.out.line(line)
    return 0


def _bash(verbs: dict[str, argparse.ArgumentParser]) -> str:
    cases = "\n".join(f"    {verb}) flags='{' '.join(_words(one))}';;" for verb, one in verbs.items())
    return f"""_sbx() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} flags=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{" ".join(verbs)}' -- "$word")); return
  fi
  case $verb in
{cases}
  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word"));;
    *) COMPREPLY=($(compgen -W "$flags $(sbx ls -q 2>/dev/null)" -- "$word") $(compgen -f -- "$word"));;
  esac
}}
complete -F _sbx sbx sbxtui"""


def _zsh(verbs: dict[str, argparse.ArgumentParser]) -> str:
    return f"""#compdef sbx sbxtui
autoload -U +X bashcompinit && bashcompinit
{_bash(verbs)}"""


def _fish(verbs: dict[str, argparse.ArgumentParser]) -> str:
    lines = ["complete -c sbx -f", "complete -c sbxtui -w sbx"]
    for verb, one in verbs.items():
        about = (one.description or "").replace("'", "")
        lines.append(f"complete -c sbx -n __fish_use_subcommand -a {verb} -d '{about}'")
        for flag in _words(one):
            if flag.startswith("--"):
                lines.append(f"complete -c sbx -n '__fish_seen_subcommand_from {verb}' -l {flag[2:]}")
            elif not flag.startswith("-"):
                lines.append(f"complete -c sbx -n '__fish_seen_subcommand_from {verb}' -a {flag}")
        if any(action.dest in _TAKES_SANDBOX for action in one._actions):
            lines.append(f"complete -c sbx -n '__fish_seen_subcommand_from {verb}' -a '(sbx ls -q 2>/dev/null)'")
    return "\n".join(lines)


def _words(one: argparse.ArgumentParser) -> list[str]:
    """A verb's flags, and its sub-verbs if it has some."""
    words = [flag for action in one._actions for flag in action.option_strings]
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            words += list(action.choices)
    return words

"""`completion bash|zsh|fish` prints a script; the script asks `completion words` what may stand where the cursor is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ParamSpec

from sbxtui.cli import parser
from sbxtui.cli.call import Call
from sbxtui.cli.candidates import Known, candidates
from sbxtui.core.errors import SbxError
from sbxtui.core.model import DEFAULT_MEMORY_MIB, MEMORY_SIZES_MIB, ContextKind, SandboxState

P = ParamSpec("P")

_BASH = r"""_sbx() {
  local word=${COMP_WORDS[COMP_CWORD]} line
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word");;
      :folders) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$word");;
      *) COMPREPLY+=("$line");;
    esac
  done < <(printf '%s\0' "${COMP_WORDS[@]:1:COMP_CWORD}" | "${COMP_WORDS[0]}" completion words 2>/dev/null)
  case ${COMPREPLY[0]} in *[:=\<\>]) compopt -o nospace 2>/dev/null;; esac
}
complete -F _sbx sbx sbxtui"""

_ZSH = r"""#compdef sbx sbxtui
_sbx() {
  local line
  local -a whole open
  while IFS= read -r line; do
    case $line in
      :files) _files;;
      :folders) _files -/;;
      *[:=\<\>]) open+=("$line");;
      *) whole+=("$line");;
    esac
  done < <(printf '%s\0' "${(@Q)words[2,CURRENT]}" | "${words[1]}" completion words 2>/dev/null)
  (( $#open )) && compadd -S '' -a open
  (( $#whole )) && compadd -a whole
}
compdef _sbx sbx sbxtui"""

_FISH = r"""function __sbx_words
  set -l words (commandline -opc) (commandline -ct)
  for word in (printf '%s\0' $words[2..-1] | sbx completion words 2>/dev/null)
    switch $word
      case ':files' ':folders'
        __fish_complete_path (commandline -ct)
      case '*'
        echo $word
    end
  end
end
complete -c sbx -f -a '(__sbx_words)'
complete -c sbxtui -w sbx"""


def completion(call: Call) -> int:
    """Print the completion script of a shell, or answer one."""
    if call.args.shell == "words":
        return _answer(call)
    script = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[call.args.shell]
    call.out.result({"shell": call.args.shell, "script": script})
    for line in script.splitlines():
        call.out.line(line)
    return 0


def _answer(call: Call) -> int:
    """Read the words so far from stdin, each ended by a NUL, the one being typed last; print what may stand there."""
    words = sys.stdin.buffer.read().decode(errors="replace").split("\0")[:-1]
    found = candidates(parser.program(), words, _known(call))
    call.out.result({"words": found})
    for word in found:
        call.out.line(word)
    return 0


def _known(call: Call) -> Known:
    return Known(
        names=_quiet(lambda states: _names(call, states)),
        contexts=_quiet(lambda: [str(context.name) for context in call.services.contexts.list()]),
        images=_quiet(lambda: _images(call)),
        jobs=_quiet(lambda: _jobs(call)),
    )


def _names(call: Call, states: frozenset[SandboxState]) -> list[str]:
    """By the states as last seen: nothing is asked, and no local cloud started, because somebody pressed a key."""
    seen = call.services.inventories.cached(call.services.context)
    return sorted(one.name for one in seen.sandboxes if one.is_tracked and one.state in states)


def _images(call: Call) -> list[str]:
    """Those that sandboxes were made of here and, on this machine, the local cloud's own."""
    seen = call.services.inventories.cached(call.services.context)
    used = {one.image_name for one in seen.sandboxes}
    if call.services.context.kind is ContextKind.LOCAL:
        used |= {f"sbx-base-{size}" for size in MEMORY_SIZES_MIB if size != DEFAULT_MEMORY_MIB} | {"sbx-base"}
    return sorted(used)


def _jobs(call: Call) -> list[str]:
    from sbxtui.store.jobs import JobIndex

    return [job.id for job in JobIndex(call.services.store).list(call.services.context.name) if job.exit is None]


def _quiet(source: Callable[P, list[str]]) -> Callable[P, list[str]]:
    """A source whose failure is no word at all: there is nowhere to tell it while somebody types."""

    def ask(*args: P.args, **kwargs: P.kwargs) -> list[str]:
        try:
            return source(*args, **kwargs)
        except SbxError:
            return []

    return ask

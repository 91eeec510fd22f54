"""`secret`: keys that programs in a sandbox can use and not read."""

from __future__ import annotations

import sys

from sbxtui.cli.asking import ask_hidden
from sbxtui.cli.call import Call
from sbxtui.cli.envfile import own_value
from sbxtui.cli.fitting import Cut
from sbxtui.cli.stdin import read_stdin
from sbxtui.core.errors import UsageError
from sbxtui.core.secrets import MAX_VALUE_CHARS, check_key
from sbxtui.services.secrets import SecretState

_CUTS = (Cut("GOES TO", 16), Cut("PLACEHOLDER", 0), Cut("SECRET", 16), Cut("GOES TO", 8))


async def set_(call: Call) -> int:
    """Give one, or change its value."""
    args = call.args
    key = check_key(args.key)
    row = await call.services.sandboxes.find(args.sandbox)
    hosts = [host for part in args.host for host in part.split(",")]
    state = await call.services.secrets.set(row, key, await _value(call, key), hosts)
    _tell(call, row.name, [state])
    call.out.note(f"commands from now on find it as {key}; its value goes to {', '.join(state.places)} only")
    return 0


async def ls(call: Call) -> int:
    """List them."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    found = await call.services.secrets.list(row)
    if call.out.is_json:
        call.out.json([_json(row.name, one) for one in found])
        return 0
    rows = [(one.key, ", ".join(one.places), one.placeholder) for one in found]
    call.out.table(
        ("SECRET", "GOES TO", "PLACEHOLDER"),
        rows,
        cuts=_CUTS,
        is_wide=call.args.wide,
        names=[one.key for one in found],
        empty=f"`{row.name}` has no secrets",
    )
    return 0


async def rm(call: Call) -> int:
    """Take one back."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    state = await call.services.secrets.remove(row, call.args.key)
    _tell(call, row.name, [state])
    if not state.is_told_inside:
        call.out.note(f"note: `{row.name}` does not answer: a placeholder left there is worth nothing")
    return 0


async def _value(call: Call, key: str) -> str:
    """From a variable of ours, or from stdin; never from the command line, which every process can read."""
    if call.args.from_env is not None:
        return own_value(call.args.from_env or key, "--from-env")
    if sys.stdin.isatty():
        if call.args.no_input:
            raise UsageError(f"the value of `{key}` would have to be asked for", hint="pipe it in, or --from-env")
        return await ask_hidden(f"value of {key} (not shown)")
    content = b""
    async for chunk in read_stdin():
        content += chunk
        if len(content) > MAX_VALUE_CHARS + 2:
            raise UsageError(f"the value of `{key}` is longer than {MAX_VALUE_CHARS} characters")
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        raise UsageError(f"the value of `{key}` is not printable ASCII") from None
    return text.removesuffix("\n").removesuffix("\r")


def _tell(call: Call, name: str, states: list[SecretState]) -> None:
    for state in states:
        call.out.result(_json(name, state))
        call.out.line(state.key)


def _json(name: str, state: SecretState) -> dict[str, object]:
    return {
        "sandbox": name,
        "key": state.key,
        "placeholder": state.placeholder,
        "hosts": list(state.places),
        "is_told_inside": state.is_told_inside,
    }

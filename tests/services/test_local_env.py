"""The lines with which other AWS clients are led to the local cloud."""

from __future__ import annotations

import subprocess

from sbxtui.services.localcloud import shell_lines

ODD = """/home/o'brien/$(touch oops) "quoted" \\ `x`"""


def test_a_path_with_quotes_reaches_the_clients_as_it_is() -> None:
    [line] = shell_lines({"AWS_CA_BUNDLE": ODD}, "sh")
    told = subprocess.run(
        ["sh", "-c", f'{line}\nprintf %s "$AWS_CA_BUNDLE"'], capture_output=True, text=True, check=True
    )
    assert told.stdout == ODD
    assert shell_lines({"A": "o'b\\"}, "fish") == ["set -gx A 'o\\'b\\\\'"]
    assert shell_lines({"A": "o'b"}, "powershell") == ["$env:A = 'o''b'"]

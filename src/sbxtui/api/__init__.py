"""The Python API: sandboxes from a program, the same ones as on the command line and in the dashboard.

    from sbxtui import Sandbox

    sandbox = await Sandbox.create("calm-otter", memory=512)
    print((await sandbox.exec("python3", ["-c", "print('hi')"])).stdout_text)
    await sandbox.terminate()

Every failure is an `sbxtui.core.errors.SbxError` with a message and a hint. Nothing heavy is imported before the first
call that needs it. `SyncSandbox` is the same without `await`.

One file per thing a sandbox can do, each a class on `opened.Opened`; `sandbox.Sandbox` is made of them, and
`blocking.SyncSandbox` names each method once more. May import what lies below the faces.
"""

from __future__ import annotations

from sbxtui.api.blocking import SyncSandbox
from sbxtui.api.commands import ExecOutput
from sbxtui.api.sandbox import Sandbox
from sbxtui.api.sync import SyncOutput
from sbxtui.core.secrets import NewSecret

__all__ = ["ExecOutput", "NewSecret", "Sandbox", "SyncOutput", "SyncSandbox"]

"""Arguments that many tools take."""

from __future__ import annotations

from sbxtui.mcp_server.params import Kind, Param

NAME = Param("name", help="Its name or id", is_required=True, aliases=("id",))
CONFIRM = Param("confirm", Kind.FLAG, "Do it; else the person is asked, or nothing is done")
DRY_RUN = Param("dry_run", Kind.FLAG, "Only say what would be done")
MAX_BYTES = Param("max_bytes", Kind.WHOLE, "Most output in the reply (32768)", least=1, most=800_000)
WAIT_MS = Param("wait_ms", Kind.WHOLE, "Reply by then, even if it goes on (45000)", least=0, most=600_000)
CWD = Param("cwd", help="Working folder", aliases=("workdir",))
ENV = Param("env", Kind.VARIABLES, "Variables, over the sandbox's own")
USER = Param("user", help="User to run as, by name or number")
TIMEOUT = Param("timeout", Kind.WHOLE, "Kill it after so many seconds (120)", least=1, most=86_400)
TIMEOUT_MS = Param("timeout_ms", Kind.WHOLE, "timeout in milliseconds", least=1, most=86_400_000)
STDIN = Param("stdin", help="Text for its standard input")
STDIN_BASE64 = Param("stdin_base64", help="Bytes for its standard input")

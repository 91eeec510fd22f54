"""What a new sandbox shall be, as tools take it."""

from __future__ import annotations

from sbxtui.core.errors import UsageError
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.services.launch import CreateOptions

USUAL_PARAMS = (
    Param("image", help="Image name or ARN (sbx-base)", aliases=("image_arn", "imageArn")),
    Param("memory", Kind.WHOLE, "MiB: 512, 1024, 2048, 4096 or 8192", aliases=("memory_mib", "memoryMib")),
    Param("env", Kind.VARIABLES, "Environment of every command"),
    Param("network", help="none, internet or allow=HOST:PORT,..."),
)
PLATFORM_PARAMS = (
    Param("cpus", Kind.WHOLE, "Checked against what the memory size gives", least=1),
    Param("egress", Kind.FLAG, "Attach the egress connector of the settings (AWS)"),
    Param("egress_connector", help="ARN of an egress connector (AWS)"),
)
FURTHER_PARAMS = (
    Param("labels", Kind.VARIABLES, "Labels to find it by"),
    Param("role", help="ARN of its execution role (AWS)", aliases=("execution_role_arn",)),
    Param("idle_s", Kind.WHOLE, "Suspend after so many seconds without traffic", least=60),
    Param("max_duration_s", Kind.WHOLE, "Terminate after so many seconds", least=1, aliases=("ttl",)),
)


def options_of(call: Call) -> CreateOptions:
    """What a call asks for.

    Raises:
        UsageError: `egress` without a connector to attach.
    """
    args = call.args
    connector = args.text("egress_connector")
    if args.flag("egress") and not connector:
        connector = call.services.defaults.egress_connector
        if not connector:
            raise UsageError("`egress` has no connector to attach", hint="name one with `egress_connector`")
    return CreateOptions(
        image=args.text("image"),
        role=args.text("role"),
        memory_mib=args.whole("memory"),
        cpus=args.whole("cpus"),
        env=args.variables("env"),
        labels=args.variables("labels"),
        idle_s=args.whole("idle_s"),
        max_duration_s=args.whole("max_duration_s"),
        network=args.text("network"),
        egress_connectors=(connector,) if connector else (),
        workdir=args.text("workdir"),
    )

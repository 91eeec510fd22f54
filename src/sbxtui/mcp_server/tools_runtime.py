"""Tools that tell what this server can do, and what this machine lacks for it."""

from __future__ import annotations

from sbxtui.core.model import MEMORY_SIZES_MIB, VCPUS_BY_MEMORY_MIB, ContextKind
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.facts import checks, runtime_facts
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.services.network import has_own_network


async def check(call: Call) -> Reply:
    """What works, what does not, and what to do about it."""
    return Reply(await runtime_facts(call.services))


async def install(call: Call) -> Reply:
    """How to set up what is missing; installs nothing."""
    if call.services.context.kind is ContextKind.LOCAL:
        steps = ["nothing has to be set up: the local cloud starts by itself", "stronger isolation: sbx local setup"]
    else:
        steps = ["sbx infra init", "sbx infra preview", "sbx infra up"]
    missing = [one for one in await checks(call.services) if one.status != "ok"]
    told = [{"name": one.name, "words": one.words, "hint": one.hint} for one in missing]
    return Reply({"installed": not any(one.status == "fail" for one in missing), "steps": steps, "missing": told})


async def capabilities(call: Call) -> Reply:
    """What sandboxes of this context can be."""
    context = call.services.context
    is_local = context.kind is ContextKind.LOCAL
    # Small files of this machine: a thread, which waits for its turn, would cost more.
    own_network = has_own_network(call.settings.home, context)
    return Reply(
        {
            "context": context.name,
            "kind": context.kind.value,
            "isolation": call.services.planes.isolation_words(context) or "not known before the first sandbox",
            "memory_mib": list(MEMORY_SIZES_MIB),
            "cpus_by_memory_mib": {str(size): cpus for size, cpus in VCPUS_BY_MEMORY_MIB.items()},
            "network": {"default": "none" if is_local else "the image's egress", "is_enforced": own_network},
            "default_timeout_ms": call.settings.mcp_default_timeout_ms,
            "max_output_bytes": call.settings.mcp_max_output_bytes,
        }
    )


TOOLS = (
    Tool(
        "runtime_check",
        Toolset.CORE,
        Effect.READS,
        "Check this machine, the context and the isolation of its sandboxes.",
        check,
    ),
    Tool(
        "runtime_install",
        Toolset.OBSERVE,
        Effect.READS,
        "Tell how to set up what is missing; installs nothing.",
        install,
    ),
    Tool(
        "sandbox_capabilities",
        Toolset.OBSERVE,
        Effect.READS,
        "What sandboxes here can be: sizes, network, isolation, limits.",
        capabilities,
    ),
)

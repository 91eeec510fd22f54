"""Values as the one document that every face shows of them. Pure."""

from __future__ import annotations

from sbxtui.core.jobs import Job, JobExit
from sbxtui.core.model import (
    VCPUS_BY_MEMORY_MIB,
    Event,
    ExecResult,
    FileInfo,
    IdlePolicy,
    Image,
    Registration,
    Sandbox,
    SandboxRecord,
)
from sbxtui.core.text import iso
from sbxtui.core.usage import Usage


def inspected_json(known: Registration | Sandbox, record: SandboxRecord) -> dict[str, object]:
    """What is known here and the control plane's record."""
    return {**registration_json(known), "record": record_json(record)}


def registration_json(known: Registration | Sandbox) -> dict[str, object]:
    """What is known here of a sandbox; of the environment it was launched with the names alone.

    `workdir` and `env_names` are null where nobody here was told.
    """
    return {
        "name": known.name or None,
        "id": known.id or None,
        "context": known.context,
        "endpoint": known.endpoint or None,
        "image_arn": known.request.image_arn if isinstance(known, Registration) else known.image_arn,
        "network": known.facts.get("network"),
        "isolation": known.facts.get("isolation"),
        "memory_mib": known.facts.get("memory_mib"),
        "cpus": _cpus(known.facts.get("memory_mib")),
        "workdir": known.facts.get("workdir") or None,
        "env_names": known.facts.get("env_names"),
        "labels": dict(known.labels),
        "created_at": iso(known.created_at),
    }


def _cpus(memory_mib: object) -> int | None:
    return VCPUS_BY_MEMORY_MIB.get(memory_mib) if isinstance(memory_mib, int) else None


def record_json(record: SandboxRecord) -> dict[str, object]:
    """The control plane's record, in our names."""
    return {
        "id": record.id,
        "state": record.state.value,
        "state_reason": record.state_reason or None,
        "endpoint": record.endpoint or None,
        "image_arn": record.image_arn,
        "image_version": record.image_version,
        "started_at": iso(record.started_at),
        "terminated_at": iso(record.terminated_at) if record.terminated_at else None,
        "max_duration_s": record.max_duration_s or None,
        "idle": _idle_json(record.idle),
        "execution_role_arn": record.execution_role_arn or None,
        "ingress_connectors": list(record.ingress_connectors),
        "egress_connectors": list(record.egress_connectors),
    }


def _idle_json(idle: IdlePolicy | None) -> dict[str, object] | None:
    if idle is None:
        return None
    return {"max_idle_s": idle.max_idle_s, "suspended_s": idle.suspended_s, "auto_resume": idle.auto_resume}


def sandbox_json(sandbox: Sandbox) -> dict[str, object]:
    """A sandbox as scripts see it. `seen_at` is when its state was told, null if that is unknown."""
    return {
        "name": sandbox.name or None,
        "id": sandbox.id or None,
        "context": sandbox.context,
        "state": sandbox.state.value,
        "state_reason": sandbox.state_reason or None,
        "tracked": sandbox.is_tracked,
        "image": sandbox.image_name,
        "image_arn": sandbox.image_arn,
        "image_version": sandbox.image_version,
        "endpoint": sandbox.endpoint or None,
        "network": sandbox.facts.get("network"),
        "isolation": sandbox.facts.get("isolation"),
        "memory_mib": sandbox.facts.get("memory_mib"),
        "labels": dict(sandbox.labels),
        "created_at": iso(sandbox.created_at),
        "seen_at": iso(sandbox.seen_at) if sandbox.seen_at else None,
    }


def event_json(event: Event) -> dict[str, object]:
    """An event as scripts see it."""
    return {
        "seq": event.seq,
        "at": iso(event.at),
        "context": event.context or None,
        "kind": event.kind,
        "subject": event.subject,
        "actor": event.actor,
        "data": dict(event.data),
    }


def file_json(info: FileInfo) -> dict[str, object]:
    """A file as scripts see it."""
    return {
        "path": info.path,
        "kind": info.kind,
        "size_bytes": info.size_bytes,
        "mode": f"{info.mode:04o}",
        "modified_at": iso(info.modified_at),
        "target": info.target or None,
    }


def exec_json(result: ExecResult) -> dict[str, object]:
    """A finished command as scripts see it; output that is not UTF-8 comes as base64."""
    return {
        "exit_code": result.exit_code,
        "signal": result.signal or None,
        "timed_out": result.timed_out,
        "oom": result.oom,
        "truncated": result.truncated,
        "lingering": result.lingering,
        "duration_s": round(result.duration_s, 3),
        **bytes_json("stdout", result.stdout),
        **bytes_json("stderr", result.stderr),
    }


def job_json(job: Job) -> dict[str, object]:
    """A job as scripts see it; `exit` is null while it runs, or when nobody here saw how it ended."""
    return {
        "id": job.id,
        "sandbox": job.sandbox or None,
        "state": job.state.value,
        "command": job.command,
        "label": job.label or None,
        "actor": job.actor or None,
        "tty": job.has_terminal,
        "stdin": job.has_stdin,
        "created_at": iso(job.created_at),
        "exit": exit_document(job.exit) if job.exit else None,
    }


def exit_document(ending: JobExit) -> dict[str, object]:
    """How a job ended, as scripts see it."""
    return {
        "exit_code": ending.exit_code,
        "signal": ending.signal or None,
        "timed_out": ending.timed_out,
        "oom": ending.oom,
        "lingering": ending.lingering,
        "duration_s": round(ending.duration_s, 3),
    }


def bytes_json(name: str, data: bytes) -> dict[str, object]:
    """Bytes as text where they are UTF-8, else as base64; `NAME_encoding` says which."""
    try:
        return {name: data.decode("utf-8"), f"{name}_encoding": "utf-8"}
    except UnicodeDecodeError:
        import base64

        return {name: base64.b64encode(data).decode("ascii"), f"{name}_encoding": "base64"}


def usage_json(usage: Usage) -> dict[str, object]:
    """A sample as scripts see it: bytes, seconds, percent; null is unknown."""
    fields = {name: getattr(usage, name) for name in Usage.__slots__ if name != "at"}
    return {"at": iso(usage.at), **fields, "memory_percent": usage.memory_percent}


def image_json(image: Image) -> dict[str, object]:
    """An image as scripts see it."""
    return {
        "name": image.name,
        "arn": image.arn,
        "state": image.state,
        "version": image.latest_version or None,
        "managed": image.is_managed,
        "created_at": iso(image.created_at) if image.created_at else None,
    }

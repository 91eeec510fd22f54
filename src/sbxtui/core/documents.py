"""A sandbox as the one document that every face shows of it. Pure."""

from __future__ import annotations

from sbxtui.core.model import VCPUS_BY_MEMORY_MIB, IdlePolicy, Registration, Sandbox, SandboxRecord
from sbxtui.core.text import iso


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

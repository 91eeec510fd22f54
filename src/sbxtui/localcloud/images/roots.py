"""Whether a build can write all of its root, and what it stands on. Blocking, all of it."""

from __future__ import annotations

from sbxtui.localcloud.runtimes.choose import find_runtime
from sbxtui.localcloud.runtimes.own_root_probe import own_root
from sbxtui.localcloud.runtimes.system_root import system_root
from sbxtui.localcloud.spec import SandboxSpec

OWN_ROOT_WORDS = (
    "RUN and COPY may write everywhere, as root; all users are one here, so that chown and the like change nothing"
)
# What there is of it inside; see `bubblewrap`.
_WITH_ROOT = "bubblewrap"


def root_problem(spec: SandboxSpec) -> str:
    """Why a build in sandboxes like this one cannot write its root; empty: it can."""
    if spec.runtime != _WITH_ROOT:
        return "a root that can be written is to be had in namespaces (bubblewrap) only"
    probe = find_runtime(spec.runtime).probe(spec.image_tree_parent)
    return own_root(spec.image_tree_parent).problem if probe.ok else probe.why_not


def ground_of(spec: SandboxSpec) -> str:
    """Tells the system a build stands on from what that was, or will be; empty for a base, which stays as it is."""
    return "" if spec.base_dir is not None else system_root(spec.image_tree_parent).name

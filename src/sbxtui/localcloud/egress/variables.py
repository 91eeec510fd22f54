"""The environment that leads programs in a sandbox to its proxy."""

from __future__ import annotations

import json
from collections.abc import Mapping

# Inside every sandbox, on its own loopback.
EGRESS_PORT = 3128
# The guest puts the job's id in its place, so that the log can say which job asked.
_PROXY = f"http://{{job}}:job@127.0.0.1:{EGRESS_PORT}"
_DIRECT = "localhost,127.0.0.1,::1"


def egress_env() -> Mapping[str, str]:
    """For the guest: where its bridge listens for programs that want out, and what every job is told of that."""
    proxies = {name: _PROXY for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
    told = {**proxies, "NO_PROXY": _DIRECT, "no_proxy": _DIRECT, "NODE_USE_ENV_PROXY": "1"}
    return {"SBX_EGRESS_PORT": str(EGRESS_PORT), "SBX_JOB_ENV": json.dumps(told)}

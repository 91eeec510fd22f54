"""What the next build of an image may reach, where that is not the usual: asked for before the build itself is.

PUT /sbx/v1/images/NAME/network   {"network": TEXT}

AWS's API has no word for it but connectors, and none of those that means no network.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from sbxtui.core.egress import NetworkPolicy, parse_network
from sbxtui.core.errors import UsageError
from sbxtui.localcloud import faults
from sbxtui.localcloud.egress.policies import PolicyStore
from sbxtui.localcloud.images.wayout import USUAL_NETWORK
from sbxtui.localcloud.sigv4 import HttpRequest

PREFIX = "/sbx/v1/images/"
_PATH = re.compile(re.escape(PREFIX) + r"([a-zA-Z0-9-_]{1,64})/network")


@dataclass(frozen=True, slots=True)
class BuildNetworks:
    """Kept on disk: a build that was to reach nothing must not reach all after a restart."""

    store: PolicyStore

    def take(self, image: str) -> NetworkPolicy:
        """What the build that begins now may reach. Blocking."""
        if not self.store.has(image):
            return USUAL_NETWORK
        policy = self.store.load(image)
        self.store.forget(image)
        return policy

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """The answer's document.

        Raises:
            Fault: What goes wrong, in the service's own shape.
        """
        match = _PATH.fullmatch(request.raw_path)
        if match is None or request.method != "PUT":
            raise faults.unknown_operation()
        try:
            policy = parse_network(str(json.loads(request.body)["network"]))
        except (ValueError, TypeError, KeyError) as exc:
            raise faults.serialization("The body must be a JSON object with `network`") from exc
        except UsageError as exc:
            raise faults.validation(exc.message) from exc
        await self.store.save(match[1], policy)
        return {"network": policy.text}

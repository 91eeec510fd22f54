"""What a launch uses where the person named nothing: settings first, then what setting up the infrastructure left."""

from __future__ import annotations

from dataclasses import dataclass

from sbxtui.core.model import Context, ContextKind
from sbxtui.core.paths import at_home
from sbxtui.core.sizing import BASE_IMAGE
from sbxtui.settings import Settings
from sbxtui.store.outputs import Outputs


@dataclass(frozen=True, slots=True)
class LaunchDefaults:
    """Image (a name or an ARN), execution role and egress connector; empty means none."""

    image: str
    role: str = ""
    egress_connector: str = ""


def launch_defaults(settings: Settings, context: Context, outputs: Outputs) -> LaunchDefaults:
    """The defaults of a context. An ARN of AWS means nothing to the local cloud and is left out there."""
    if context.kind is ContextKind.LOCAL:
        return LaunchDefaults(BASE_IMAGE if settings.image_arn.startswith("arn:") else settings.image_arn or BASE_IMAGE)
    return LaunchDefaults(
        image=settings.image_arn or outputs.get(context.name, "image_arn") or BASE_IMAGE,
        role=settings.execution_role_arn or outputs.get(context.name, "execution_role_arn"),
        egress_connector=settings.egress_connector or outputs.get(context.name, "egress_network_connector_arn"),
    )


def unused_aws_settings(settings: Settings, context: Context) -> str:
    """One line for somebody who set up AWS but acts on the local cloud; empty when there is nothing to say."""
    if context.kind is not ContextKind.LOCAL:
        return ""
    infra_file = at_home(settings.seed_infra_state_file)
    if settings.image_arn.startswith("arn:"):
        found = f"{settings.sources.get('image_arn', 'the settings')} names an image on AWS"
    elif infra_file.exists():
        found = f"{infra_file} holds infrastructure on AWS"
    else:
        return ""
    return f"{found}; this is the local cloud. To use it: sbx context add aws --region REGION, sbx context use aws"

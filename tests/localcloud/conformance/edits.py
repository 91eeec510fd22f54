"""For each fact that holds, its rule taken out of the local cloud: a text of a module, and what replaces it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.localcloud.conformance import facts


@dataclass(frozen=True)
class Edit:
    """The check `name` must fail where `old` is `new` in a module; checks of `after` make what it needs."""

    name: str
    module: str
    old: str
    new: str
    after: tuple[str, ...] = ()


def _named(check: object) -> str:
    return str(getattr(check, "__name__", ""))


_UPDATED = (_named(facts.an_update_takes_nothing_from_the_version_before),)
_DELETED = (*_UPDATED, _named(facts.the_last_version_goes_with_its_image_only))
_TAGGED = (_named(facts.images_and_connectors_have_tags),)
_BAD = (*_TAGGED, _named(facts.a_connector_can_fail_for_each_reason))

EDITS = [
    Edit(
        _named(facts.every_operation_of_the_model_is_done),
        "sbxtui.localcloud.routes",
        '            "CreateMicrovmShellAuthToken": self._create_shell_token,\n',
        "",
    ),
    Edit(
        _named(facts.a_raw_equals_sign_in_a_token_is_refused_without_a_message),
        "sbxtui.localcloud.model",
        'if "=" in value:',
        "if False:",
    ),
    Edit(
        _named(facts.a_filtered_page_may_be_empty_and_have_a_next_one),
        "sbxtui.localcloud.images.api",
        '        return answer | {"items": [row for row in answer["items"] if wanted in row["name"]]}\n',
        "        return answer\n",
    ),
    Edit(
        _named(facts.the_managed_base_is_listed_with_two_versions),
        "sbxtui.localcloud.images.api",
        "for index, row in enumerate(found)]",
        "for index, row in enumerate(found[:1])]",
    ),
    Edit(
        _named(facts.a_build_without_its_archive_fails_and_says_so_on_its_build),
        "sbxtui.localcloud.images.documents",
        '            **({"stateReason": version.reason} if version.reason else {}),\n',
        "",
    ),
    Edit(
        _named(facts.each_way_to_fail_has_its_reason),
        "sbxtui.localcloud.images.builder",
        'raise BuildFailed("ARCHIVE_DOCKERFILE_NOT_FOUND") from exc',
        "raise BuildFailed(_FAILED) from exc",
    ),
    Edit(
        _named(facts.an_update_takes_nothing_from_the_version_before),
        "sbxtui.localcloud.images.shelf",
        "_new_version(image.made + 1, params, datetime.now(UTC))",
        "_new_version(image.made + 1, {**image.versions[-1].asked, **params}, datetime.now(UTC))",
    ),
    Edit(
        _named(facts.the_last_version_goes_with_its_image_only),
        "sbxtui.localcloud.images.shelf",
        "if sum(one.deleting_at is None for one in image.versions) == 1:",
        "if False:",
        _UPDATED,
    ),
    Edit(
        _named(facts.a_deleted_images_name_stays_taken_for_a_while),
        "sbxtui.localcloud.images.shelf",
        "if known is not None or self.catalog",
        "if self.catalog",
        _DELETED,
    ),
    Edit(
        _named(facts.a_client_token_makes_one_image_of_two_requests),
        "sbxtui.localcloud.images.shelf",
        "        if known is not None and (token",
        "        if False and (token",
    ),
    Edit(
        _named(facts.a_client_token_makes_one_sandbox_of_two_requests),
        "sbxtui.localcloud.fleet",
        'self._ids_by_token.get(params.get("clientToken", ""))',
        "None",
    ),
    Edit(
        _named(facts.images_and_connectors_have_tags),
        "sbxtui.localcloud.images.tags",
        'if key not in params["TagKeys"]',
        "",
    ),
    Edit(
        _named(facts.a_connector_is_made_changed_and_gone),
        "sbxtui.localcloud.connectors.api",
        "if any(known.name == name for known in self._living()):",
        "if False:",
    ),
    Edit(
        _named(facts.a_connector_can_fail_for_each_reason),
        "sbxtui.localcloud.connectors.api",
        '!= "ACTIVE":',
        '== "NEVER":',
    ),
    Edit(
        _named(facts.connectors_are_listed_in_pages_and_by_state),
        "sbxtui.localcloud.connectors.api",
        'params.get("State") in (None, one.state(datetime.now(UTC), self.time_scale))',
        "True",
        _BAD,
    ),
    Edit(
        _named(facts.a_sandbox_is_launched_with_a_connector_of_the_account),
        "sbxtui.localcloud.connectors.api",
        "if self.is_used(self.arn_of(found)):",
        "if False:",
        _TAGGED,
    ),
    Edit(
        _named(facts.the_internet_is_reached_with_its_connector_only),
        "sbxtui.localcloud.egress.service",
        "in record.egress_connectors:",
        "in ():",
    ),
    Edit(
        _named(facts.a_client_of_awss_regions_is_answered_in_its_own),
        "sbxtui.localcloud.arns",
        "if source == target:",
        "if True:",
    ),
    Edit(
        _named(facts.only_http_with_shell_gives_a_shell),
        "sbxtui.localcloud.routes",
        'if has["ALL_INGRESS"]:',
        "if False:",
    ),
    Edit(
        _named(facts.what_has_ended_stays_readable),
        "sbxtui.localcloud.routes",
        "for record in self._fleet.records()]",
        'for record in self._fleet.records() if record.state.value != "TERMINATED"]',
    ),
    Edit(
        _named(facts.objects_are_put_and_got_whole_and_in_parts),
        "sbxtui.localcloud.s3.api",
        "    for part in parts:\n            with",
        "    for part in list(parts)[:1]:\n            with",
    ),
]

"""EC2's eventual consistency: new objects are not described at once.

"Eventual consistency in the Amazon EC2 API" (Developer Guide) promises no time; here it is always the same few seconds
of the simulation's clock.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.iam import iam_backends

from nodesmith_local.aws.strict.refusals import Refusal


@dataclass(slots=True)
class Visibility:
    """How long EC2 takes to show new objects. May be changed at any time.

    `templates_after` and `profiles_after` affect CreateFleet, which names templates and profiles; both are visible at
    once by default.
    """

    now: Callable[[], datetime]
    instances_after: timedelta = timedelta(seconds=2)
    templates_after: timedelta = timedelta()
    profiles_after: timedelta = timedelta()
    _settled_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    def settle(self) -> None:
        """Make everything that exists now visible."""
        self._settled_at = self.now()

    def shows(self, made_at: datetime, after: timedelta) -> bool:
        """Return whether an object made at that time (naive times are UTC) is visible now."""
        made_at_utc = made_at if made_at.tzinfo else made_at.replace(tzinfo=UTC)
        return made_at_utc <= self._settled_at or self.now() - made_at_utc >= after

    def describe_instances(
        self, parameters: Mapping[str, Any], describe: Callable[[], ActionResult]
    ) -> ActionResult:
        """Answer DescribeInstances without instances that are too new.

        Raises Refusal if the request names one by id.
        """
        result: Any = describe().result
        requested_ids = set(parameters.get("InstanceIds") or ())
        reservations = []
        for reservation in result["Reservations"]:
            visible_instances = [
                i for i in reservation.instances if self.shows(i.launch_time, self.instances_after)
            ]
            hidden_ids = requested_ids & (
                {i.id for i in reservation.instances} - {i.id for i in visible_instances}
            )
            if hidden_ids:
                name = min(hidden_ids)
                raise Refusal("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
            if visible_instances:
                visible = copy.copy(reservation)
                visible.instances = visible_instances
                reservations.append(visible)
        return ActionResult({**result, "Reservations": reservations})

    def check_fleet(self, parameters: Mapping[str, Any], backend: Any) -> None:
        """Raise Refusal if CreateFleet names a launch template that is too new."""
        for config in parameters.get("LaunchTemplateConfigs") or ():
            specification = config.get("LaunchTemplateSpecification") or {}
            template = _template(backend, specification)
            if template is not None and not self.shows(template.create_time, self.templates_after):
                code = "InvalidLaunchTemplateName.NotFoundException"
                raise Refusal(code, f"The launch template {template.name} does not exist.")

    def check_profiles(self, parameters: Mapping[str, Any], backend: Any) -> None:
        """Raise Refusal if the launch template of a CreateFleet request names a profile that is too new."""
        profiles = iam_backends[backend.account_id][backend.partition].instance_profiles.values()
        created_at = {profile.name: profile.create_date for profile in profiles}
        for config in parameters.get("LaunchTemplateConfigs") or ():
            template = _template(backend, config.get("LaunchTemplateSpecification") or {})
            data = template.latest_version().data if template is not None else {}
            name = str((data.get("IamInstanceProfile") or {}).get("Name", ""))
            if name in created_at and not self.shows(created_at[name], self.profiles_after):
                detail = f"Value ({name}) for parameter iamInstanceProfile.name is invalid."
                raise Refusal("InvalidParameterValue", f"{detail} Invalid IAM Instance Profile name")


def _template(backend: Any, specification: Mapping[str, Any]) -> Any:
    id_ = specification.get("LaunchTemplateId") or backend.launch_template_name_to_ids.get(
        specification.get("LaunchTemplateName")
    )
    return backend.launch_templates.get(id_)

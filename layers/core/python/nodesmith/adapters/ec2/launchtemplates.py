"""EC2 launch templates that this process has created."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.aws.calls import error_code, error_message, is_passing
from nodesmith.adapters.ec2.fleetanswers import refusal_reason
from nodesmith.errors import Transient
from nodesmith.model.ec2.launches import LaunchRequest, LaunchTemplate, Refused
from nodesmith.model.karpenter.ownership import tag_list

_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
_TRUSTED = timedelta(minutes=30)
"""How long a template is assumed to exist. Garbage collection keeps unused templates for longer."""


class Templates:
    """Creates launch templates and remembers their images, and EC2's reason for those that it rejected."""

    def __init__(self, client: Callable[[str], Any], now: Callable[[], datetime]) -> None:
        self.images: dict[str, str] = {}
        """image id by name of each template that was created or found to exist"""
        self._client = client
        self._now = now
        self._made_at: dict[str, datetime] = {}
        self._refused: dict[str, tuple[str, str]] = {}

    def is_known(self, name: str) -> bool:
        """Return whether a template was recently created or found to exist."""
        return name in self.images and self._now() - self._made_at[name] < _TRUSTED

    def create(self, template: LaunchTemplate) -> Transient | None:
        """Create a template. Return the Transient to raise if it must be retried, else None.

        A template of the same name has the same content, so an existing one counts as created.
        """
        tags = [{"ResourceType": "launch-template", "Tags": tag_list(template.tags)}]
        try:
            self._client("ec2").create_launch_template(
                LaunchTemplateName=template.name, LaunchTemplateData=template.data, TagSpecifications=tags
            )
        except (ClientError, BotoCoreError) as error:
            code, message = error_code(error), error_message(error)
            if is_passing(error):
                return Transient(f"ec2:CreateLaunchTemplate {template.name}: {code}: {message}", code)
            if not isinstance(error, ClientError):
                raise
            if code != _EXISTS:
                self._refused[template.name] = refusal_reason(code, message), f"{code}: {message}"
                return None
        self._refused.pop(template.name, None)
        self.images[template.name] = str(template.data.get("ImageId", ""))
        self._made_at[template.name] = self._now()
        return None

    def refusal(self, request: LaunchRequest) -> Refused | None:
        """Return the outcome of a request that names a template that EC2 rejected, or None if it names none."""
        refused = (self._refused.get(override.template) for override in request.overrides)
        reason = next((found for found in refused if found), None)
        return Refused(request.claim, *reason) if reason else None

    def forget(self, request: LaunchRequest) -> None:
        """Forget a request's templates, because EC2 does not know one of them."""
        for override in request.overrides:
            self.images.pop(override.template, None)

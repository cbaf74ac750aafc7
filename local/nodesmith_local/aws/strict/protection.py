"""TerminateInstances with protected instances: EC2 terminates those of the other zones and fails.

Source: the documentation of TerminateInstances in botocore's service model. An unknown id fails the whole call.
"""

from __future__ import annotations

from typing import Any

from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal


def end_what_is_not_protected(request: AwsRequest, backend: Any) -> None:
    """Handle a call that names protected instances as EC2 does, then raise Refusal; do nothing if there are none."""
    ids = request.parameters.get("InstanceIds") or ()
    instances = [instance for instance in map(backend.get_instance_by_id, ids) if instance is not None]
    protected = sorted(instance.id for instance in instances if instance.disable_api_termination is True)
    if not protected or len(instances) < len(ids):
        return
    zones = {instance.placement.zone for instance in instances if instance.id in protected}
    terminated_ids = [instance.id for instance in instances if instance.placement.zone not in zones]
    if terminated_ids:
        backend.terminate_instances(terminated_ids)
    message = (
        f"The instance '{protected[0]}' may not be terminated. Modify its 'disableApiTermination' attribute."
    )
    raise Refusal("OperationNotPermitted", message)

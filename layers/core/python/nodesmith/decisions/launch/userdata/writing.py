"""The user data of an instance, by its image family."""

from __future__ import annotations

from nodesmith.decisions.launch.userdata.al2023 import al2023_user_data
from nodesmith.decisions.launch.userdata.starting import Start
from nodesmith.model.nodeclasses.devices import AL2, AL2023, BOTTLEROCKET, CUSTOM

USER_DATA_LIMIT_BYTES = 16_384


def user_data(start: Start) -> str:
    """Return the plain text of the user data. For family Custom, this is the NodeClass's own, verbatim.

    Raises MalformedUserData. Families other than the usual one are imported with their first NodeClass.
    """
    family = start.nodeclass.ami_family
    if family == CUSTOM:
        return start.nodeclass.user_data
    if family == AL2023:
        return al2023_user_data(start)
    if family == AL2:
        from nodesmith.decisions.launch.userdata.al2 import al2_user_data

        return al2_user_data(start)
    if family == BOTTLEROCKET:
        from nodesmith.decisions.launch.userdata.bottlerocket import bottlerocket_user_data

        return bottlerocket_user_data(start)
    from nodesmith.decisions.launch.userdata.windows import windows_user_data

    return windows_user_data(start)

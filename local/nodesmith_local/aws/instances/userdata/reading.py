"""User data of any image family: how the machine joins."""

from __future__ import annotations

import base64
import json
import re
import tomllib

from nodesmith.model.nodeclasses.instancesettings import AL2, AL2023, BOTTLEROCKET, WINDOWS_FAMILIES
from nodesmith_local.aws.instances.userdata.bootstrap import Bootstrap
from nodesmith_local.aws.instances.userdata.bottlerocket import bottlerocket_bootstrap
from nodesmith_local.aws.instances.userdata.nodeadm import nodeadm_bootstrap
from nodesmith_local.aws.instances.userdata.scripts import BOOTSTRAP, bash_bootstrap, powershell_bootstrap

_READERS = {
    AL2023: nodeadm_bootstrap,
    AL2: bash_bootstrap,
    BOTTLEROCKET: bottlerocket_bootstrap,
    **dict.fromkeys(WINDOWS_FAMILIES, powershell_bootstrap),
}
_WINDOWS_IMAGE = re.compile("Windows_Server-([0-9]{4})-")
_TOML = re.compile(r"^\s*\[?settings\b", re.MULTILINE)


def parse_user_data(text: str, image_name: str = "") -> Bootstrap:
    """Parse user data as a machine with this image does. Raises Unusable.

    An image that is not one of EKS's own may be of any family; then the user data says which.
    """
    family = family_of_image(image_name) or _family_of_text(text)
    return _READERS[family](text)


_PULL = re.compile(r"^pull '([^']+)'", re.MULTILINE)
_STATIC = re.compile(r"^\[settings\.kubernetes\.static-pods\.", re.MULTILINE)


def pulled_images(text: str, image_name: str = "") -> list[str]:
    """Return the images that a machine pulls before it serves pods: by a script, or by a static pod on Bottlerocket."""
    if (family_of_image(image_name) or _family_of_text(text)) != BOTTLEROCKET:
        return _PULL.findall(text)
    if not _STATIC.search(text):
        return []
    pods = tomllib.loads(text)["settings"]["kubernetes"]["static-pods"].values()
    specs = [json.loads(base64.b64decode(pod["manifest"]))["spec"] for pod in pods if pod.get("enabled")]
    return [container["image"] for spec in specs for container in spec["containers"]]


def family_of_image(name: str) -> str:
    """Return the family of one of the images that EKS, Bottlerocket and Windows publish, empty for any other."""
    windows = _WINDOWS_IMAGE.match(name)
    if windows:
        return f"Windows{windows[1]}"
    if name.startswith("bottlerocket-"):
        return BOTTLEROCKET
    if name.startswith("amazon-eks-node-al2023-"):
        return AL2023
    return AL2 if re.match("amazon-eks-(arm64-|gpu-)?node-[0-9]", name) else ""


def _family_of_text(text: str) -> str:
    if "<powershell>" in text.lower():
        return WINDOWS_FAMILIES[0]
    if BOOTSTRAP in text:
        return AL2
    return BOTTLEROCKET if _TOML.search(text) else AL2023

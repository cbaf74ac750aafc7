"""The images of groups as selectors of an EC2NodeClass, with their family and architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodesmith_cli.migration.nodegroups.fields import Account
from nodesmith_cli.migration.nodegroups.groups import NODEGROUP, TEMPLATE, Group, GroupContext, MachineImage

_LAST_OF_AL2 = (1, 32)
"""The last version of Kubernetes with images of Amazon Linux 2."""
_RELEASE = {
    "al2": re.compile(r"-(?P<version>[0-9]{8})$"),
    "al2023": re.compile(r"-(?P<version>[0-9]{8})$"),
    "bottlerocket": re.compile(r"^v?(?P<version>[0-9]+\.[0-9]+\.[0-9]+)(-|$)"),
}
_NAMES = (
    ("al2023", re.compile(r"amazon-eks-node-al2023-.*-(?P<kubernetes>1\.[0-9]+)-v(?P<version>[0-9]{8})$")),
    (
        "al2",
        re.compile(r"amazon-eks(?:-gpu|-arm64)?-node-(?P<kubernetes>1\.[0-9]+)-v(?P<version>[0-9]{8})$"),
    ),
    (
        "bottlerocket",
        re.compile(
            r"bottlerocket-aws-k8s-(?P<kubernetes>1\.[0-9]+)(?:-nvidia)?-(?:x86_64|aarch64)-v(?P<version>[0-9.]+)-"
        ),
    ),
    (
        "windows",
        re.compile(
            r"Windows_Server-(?P<year>20(?:19|22|25))-English-(?:Core|Full)-EKS_Optimized-(?P<kubernetes>1\.[0-9]+)-"
        ),
    ),
)
_FAMILIES = {"al2": "AL2", "al2023": "AL2023", "bottlerocket": "Bottlerocket"}
_OF_USER_DATA = (
    ("Bottlerocket", re.compile(r"^\s*\[settings[.\]]", re.MULTILINE)),
    ("AL2", re.compile(r"/etc/eks/bootstrap\.sh")),
    ("AL2023", re.compile(r"node\.eks\.aws/|\bnodeadm\b")),
    ("Windows2022", re.compile(r"EKSBootstrap", re.IGNORECASE)),
)
_DEPRECATED = "Kubernetes {} has no images of Amazon Linux 2, so nodes get Amazon Linux 2023"
_LATEST = "new nodes get the newest image of the cluster's version"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The images of a group. `term` is an amiSelectorTerm, `family` the amiFamily, `arch` empty if it is unknown."""

    term: dict[str, str]
    family: str
    arch: str = ""

    @property
    def is_windows(self) -> bool:
        """Whether nodes run Windows."""
        return self.family.startswith("Windows")

    @property
    def has_alias(self) -> bool:
        """Whether the images are EKS's or Bottlerocket's own."""
        return "alias" in self.term


def chosen(group: Group, context: GroupContext, account: Account, user_data: str) -> Chosen | None:
    """Return the images of a group, None if it names none. `user_data` decides the family of a custom image."""
    kind = str(account.get(NODEGROUP, "amiType") or "")
    given = str(account.get(TEMPLATE, "ImageId") or "")
    if given:
        choice = _custom(given, context, account, user_data)
        account.record_kept((NODEGROUP, "amiType"), f"EC2NodeClass spec.amiFamily: {choice.family}")
        account.lost((NODEGROUP, "releaseVersion"), "the image's id: nothing to do", is_quiet=True)
        account.about({(NODEGROUP, "version"): "the version of Kubernetes in the image"})
        return choice
    return _managed(kind, context, account) if kind and group.is_managed else None


def _managed(kind: str, context: GroupContext, account: Account) -> Chosen | None:
    arch = "arm64" if "ARM_64" in kind else "amd64"
    path = (NODEGROUP, "amiType")
    if kind.startswith("WINDOWS_"):
        return _windows(kind, account)
    if "FIPS" in kind and kind.startswith("BOTTLEROCKET_"):
        return _fips(kind, arch, context, account)
    prefix = kind.partition("_")[0]
    alias = {"AL2": "al2", "AL2023": "al2023", "BOTTLEROCKET": "bottlerocket"}.get(prefix)
    if alias is None:
        return None
    if alias == "al2" and not _has_al2(context.version):
        account.changed(path, "al2023@latest", _DEPRECATED.format(context.version))
        account.changed((NODEGROUP, "releaseVersion"), "al2023@latest", _LATEST)
        account.about({(NODEGROUP, "version"): "the version of Kubernetes: new nodes get the cluster's"})
        return Chosen({"alias": "al2023@latest"}, "AL2023", arch)
    version = _pinned(alias, context, account)
    term = f"{alias}@{version}"
    account.record_kept(path, f"EC2NodeClass spec.amiSelectorTerms: {term}")
    return Chosen({"alias": term}, _FAMILIES[alias], arch)


def _pinned(alias: str, context: GroupContext, account: Account) -> str:
    """Return the alias's version that gives the group's own images, latest if there is none."""
    release, version = str(account.get(NODEGROUP, "releaseVersion") or ""), account.get(NODEGROUP, "version")
    match = _RELEASE[alias].search(release)
    if match is None or (version and version != context.version):
        reason = f"the group's release is of Kubernetes {version}" if match else "the release has no version"
        account.changed((NODEGROUP, "releaseVersion"), f"{alias}@latest", f"{reason}, so {_LATEST}")
        account.changed(
            (NODEGROUP, "version"), context.version, "nodes have the cluster's version of Kubernetes"
        )
        return "latest"
    pinned = f"v{match['version']}"
    reason = "as in the node group, newer images come when you change it; latest follows them by drift"
    account.record_kept(
        (NODEGROUP, "releaseVersion"), f"EC2NodeClass spec.amiSelectorTerms: {alias}@{pinned}", reason
    )
    account.record_kept((NODEGROUP, "version"), "the cluster's version of Kubernetes")
    return pinned


def _windows(kind: str, account: Account) -> Chosen | None:
    year = next((version_year for version_year in ("2019", "2022", "2025") if version_year in kind), "")
    if not year:
        return None
    alias = f"windows{year}@latest"
    if "FULL" in kind:
        reason = "aliases are of the Core edition; select a Full image by ssmParameter and amiFamily if pods need it"
        account.changed((NODEGROUP, "amiType"), alias, reason)
    else:
        account.record_kept((NODEGROUP, "amiType"), f"EC2NodeClass spec.amiSelectorTerms: {alias}")
    account.changed((NODEGROUP, "releaseVersion"), alias, "aliases of Windows have no other version")
    account.record_kept((NODEGROUP, "version"), "the cluster's version of Kubernetes")
    return Chosen({"alias": alias}, f"Windows{year}", "amd64")


def _fips(kind: str, arch: str, context: GroupContext, account: Account) -> Chosen:
    variant = f"aws-k8s-{context.version}{'-nvidia' if 'NVIDIA' in kind else ''}-fips"
    parameter = (
        f"/aws/service/bottlerocket/{variant}/{'arm64' if arch == 'arm64' else 'x86_64'}/latest/image_id"
    )
    account.record_kept(
        (NODEGROUP, "amiType"), f"EC2NodeClass spec.amiSelectorTerms: ssmParameter {parameter}"
    )
    reason = "the parameter names the newest release; name a release instead of latest to stay on one"
    account.changed((NODEGROUP, "releaseVersion"), "latest", reason)
    account.record_kept(
        (NODEGROUP, "version"), "the cluster's version of Kubernetes, which is in the parameter's name"
    )
    return Chosen({"ssmParameter": parameter}, "Bottlerocket", arch)


def _custom(given: str, context: GroupContext, account: Account, user_data: str) -> Chosen:
    """Return the images for an AMI in a launch template. EKS's own images become their alias and version."""
    path = (TEMPLATE, "ImageId")
    if given.startswith("resolve:ssm:"):
        parameter = given.removeprefix("resolve:ssm:")
        family = _family(None, user_data)
        account.record_kept(path, "EC2NodeClass spec.amiSelectorTerms: ssmParameter")
        return Chosen({"ssmParameter": parameter}, family)
    image = context.images.get(given)
    alias = _own_alias(image, context.version) if image and image.alias == "amazon" else ""
    if image and alias:
        account.record_kept(path, f"EC2NodeClass spec.amiSelectorTerms: {alias}", f"it is {image.name}")
        name = alias.partition("@")[0]
        return Chosen({"alias": alias}, _FAMILIES.get(name) or name.replace("windows", "Windows"), image.arch)
    family = _family(image, user_data)
    note = (
        "" if image else "; EC2 does not show this image: check that it exists and is shared with the account"
    )
    became = f"EC2NodeClass spec.amiSelectorTerms: id, spec.amiFamily: {family}"
    if note:
        account.changed(path, became, f"the family is that of the user data{note}")
    else:
        account.record_kept(path, became)
    return Chosen({"id": given}, family, image.arch if image else "")


def _own_alias(image: MachineImage, version: str) -> str:
    """Return the alias whose images are exactly this one for the cluster's version, empty if there is none."""
    for alias, pattern in _NAMES:
        match = pattern.match(image.name)
        if match is None:
            continue
        if alias == "windows":
            return f"windows{match['year']}@latest"
        if match["kubernetes"] != version or (alias == "al2" and not _has_al2(version)):
            return ""
        return f"{alias}@v{match['version']}"
    return ""


def _family(image: MachineImage | None, user_data: str) -> str:
    """Return the family of a custom image: by its name, else by its platform and user data, else Custom."""
    for alias, pattern in _NAMES:
        match = pattern.match(image.name) if image else None
        if match:
            return _FAMILIES.get(alias) or f"Windows{match['year']}"
    for family, wording in _OF_USER_DATA:
        if wording.search(user_data):
            return family
    return "Windows2022" if image and image.platform == "windows" else "Custom"


def _has_al2(version: str) -> bool:
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return not numbers or numbers <= _LAST_OF_AL2

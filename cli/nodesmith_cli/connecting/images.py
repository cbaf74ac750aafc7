"""The forwarder's image in the account's ECR, and pushing one."""

from __future__ import annotations

from collections.abc import Callable

from nodesmith import __version__
from nodesmith_cli.access.awssession import Client, Denied, asking, if_there
from nodesmith_cli.connecting.manifests import FORWARDER


def image_in_registry(client: Client) -> str:
    """Return this release's image in the account's repository `nodesmith-forwarder`, by digest.

    Returns an empty string if there is none.
    """
    try:
        with asking("ecr:DescribeImages", f"repository/{FORWARDER}"):
            return _pushed(client)
    except Denied:  # the caller has to name the image then
        return ""


def _pushed(client: Client) -> str:
    from botocore.exceptions import ClientError

    from nodesmith.adapters.aws.calls import error_code

    ecr = client("ecr")
    try:
        pushed_image = if_there(
            lambda: ecr.describe_images(repositoryName=FORWARDER, imageIds=[{"imageTag": __version__}])
        )
        if not pushed_image or not pushed_image["imageDetails"]:
            return ""
        repository = ecr.describe_repositories(repositoryNames=[FORWARDER])["repositories"][0]
    except ClientError as error:
        if error_code(error) not in ("RepositoryNotFoundException", "ImageNotFoundException"):
            raise
        return ""
    return f"{repository['repositoryUri']}@{pushed_image['imageDetails'][0]['imageDigest']}"


def push(repository: str, say: Callable[[str], None]) -> str:
    """Build and push the forwarder's image, and return its reference by digest. Raises Rejected, Transient."""
    from nodesmith_cli.deployment.image.pushing import push_image

    texts: list[str] = []

    def on_step(what: str, sent_bytes: int) -> None:  # noqa: ARG001 (its signature)
        if what not in texts[-1:]:
            texts.append(what)
            say(what)

    return push_image(repository, on_step=on_step).reference_by_digest

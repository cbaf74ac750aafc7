"""What nodesmith brings into a cluster of Kubernetes' own parts: its kinds, its rights, and who its functions are."""

from __future__ import annotations

import pytest
from botocore.credentials import Credentials

from nodesmith.adapters.kubernetes.ekstoken import eks_token
from nodesmith.errors import Rejected
from nodesmith_cli.local.apiserver import Store
from nodesmith_cli.local.commands import place_of
from nodesmith_cli.local.ekstokens import access_key_of
from nodesmith_cli.local.manifests import Manifests
from nodesmith_cli.local.real import functions_of, grant_rights, install_crds
from tests.served import now


def test_a_token_tells_whose_key_signed_it() -> None:
    token = eks_token(Credentials("AKIAEXAMPLE", "secret"), "express", "eu-west-1")
    assert access_key_of(token) == "AKIAEXAMPLE"


@pytest.mark.parametrize(
    "token", ["", "local", "k8s-aws-v1.", "k8s-aws-v1.%%%", "k8s-aws-v1.aGVsbG8", "k8s-aws-v2.a"]
)
def test_what_is_no_token_of_eks_was_signed_by_nobody(token: str) -> None:
    assert access_key_of(token) == ""


def test_the_functions_are_known_by_their_key_and_nobody_else_is() -> None:
    authenticate = functions_of("local", "express")
    user = authenticate(eks_token(Credentials("local", "local"), "express", "us-east-1"))
    assert user is not None
    assert user.name == "nodesmith:writer:express"
    assert authenticate(eks_token(Credentials("stranger", "local"), "express", "us-east-1")) is None
    assert authenticate("") is None


def test_the_functions_of_a_cluster_get_the_rights_of_the_deployments_manifests() -> None:
    store = Store(now)
    grant_rights(store, "express")
    grant_rights(store, "express")  # as often as one likes
    subjects = {
        binding["metadata"]["name"]: {subject["name"] for subject in binding["subjects"]}
        for kind in ("clusterrolebindings", "rolebindings")
        for binding in store.list(kind)
    }
    user = functions_of("local", "express")(eks_token(Credentials("local", "local"), "express", "us-east-1"))
    assert user is not None
    assert subjects["nodesmith-reader"] == {"nodesmith-forwarder", "nodesmith:reader:express", *user.groups}
    assert subjects["nodesmith-writer"] == {"nodesmith:writer:express"}
    named = {role["metadata"]["name"] for kind in ("clusterroles", "roles") for role in store.list(kind)}
    assert named == set(subjects)


def test_the_crds_are_served_once_they_are_installed() -> None:
    store = Store(now)
    install_crds(store)
    assert [list(store.list(kind)) for kind in ("nodepools", "nodeclaims", "ec2nodeclasses")] == [[], [], []]


def test_kubernetes_own_parts_cannot_be_hurried() -> None:
    with pytest.raises(Rejected, match=r"--speed 10: .*--control-plane embedded"):
        place_of(Manifests(), "us-east-1", 10, control_plane="real")
    assert place_of(Manifests(), "us-east-1", 1, control_plane="real").control_plane == "real"

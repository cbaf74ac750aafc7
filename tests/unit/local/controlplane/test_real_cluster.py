"""Additions to a cluster of Kubernetes' own parts: CRDs, permissions, and the functions' identity."""

from __future__ import annotations

import pytest
from botocore.credentials import Credentials

from nodesmith.adapters.aws.eks import eks_token
from nodesmith.errors import Rejected
from nodesmith_cli.simulator.localcommands.commands import place_of
from nodesmith_formats.manifests.manifests import Manifests
from nodesmith_local.apiserver import Store
from nodesmith_local.backends.ekstokens import access_key_of
from nodesmith_local.backends.real import functions_of, grant_rights, install_crds
from tests.servers.served import now


def test_a_token_contains_the_access_key_that_signed_it() -> None:
    token = eks_token(Credentials("AKIAEXAMPLE", "secret"), "express", "eu-west-1")
    assert access_key_of(token) == "AKIAEXAMPLE"


@pytest.mark.parametrize(
    "token", ["", "local", "k8s-aws-v1.", "k8s-aws-v1.%%%", "k8s-aws-v1.aGVsbG8", "k8s-aws-v2.a"]
)
def test_a_text_that_is_not_an_eks_token_has_no_access_key(token: str) -> None:
    assert access_key_of(token) == ""


def test_only_the_functions_key_is_accepted() -> None:
    authenticate = functions_of("local", "express")
    user = authenticate(eks_token(Credentials("local", "local"), "express", "us-east-1"))
    assert user is not None
    assert user.name == "nodesmith:writer:express"
    assert authenticate(eks_token(Credentials("stranger", "local"), "express", "us-east-1")) is None
    assert authenticate("") is None


def test_the_functions_of_a_cluster_get_the_rights_of_the_deployments_manifests() -> None:
    store = Store(now)
    grant_rights(store, "express")
    grant_rights(store, "express")  # may be repeated
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


def test_a_real_control_plane_runs_in_real_time_only() -> None:
    with pytest.raises(Rejected, match=r"--speed 10: .*--control-plane embedded"):
        place_of(Manifests(), "us-east-1", 10, control_plane="real")
    assert place_of(Manifests(), "us-east-1", 1, control_plane="real").control_plane == "real"

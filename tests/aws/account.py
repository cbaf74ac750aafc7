"""An in-process AWS account with the resources of the cluster `express`, which behaves like EC2."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from typing import Any

# moto reads this when its EC2 is created: without the thousand public images, every test is half a second faster.
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.base_backend import BackendDict
from moto.ec2 import ec2_backends
from moto.eks import eks_backends
from moto.iam import iam_backends

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.cloud import EC2_CONFIG
from nodesmith.model.nodeclasses.nodeclasses import (
    AMISelectorTerm,
    EC2NodeClass,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from nodesmith.settings import Settings
from nodesmith_local.aws.account import Endpoint, Network, create_resources, publish_images
from nodesmith_local.aws.seam import Ec2Seam
from nodesmith_local.aws.shortcuts import shortcuts
from nodesmith_local.aws.strict import StrictAws
from nodesmith_local.functions.deployment import deploy
from tests.fakes.cloud import CLUSTER

REGION = "us-east-1"
ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
DISCOVERY = {"karpenter.sh/discovery": CLUSTER.name}
SETTINGS = Settings(cluster_name=CLUSTER.name, region=REGION)
NODECLASS = EC2NodeClass(
    "default",
    role="KarpenterNodeRole-express",
    ami_selector_terms=(AMISelectorTerm(alias="al2023@latest"),),
    subnet_selector_terms=(SubnetSelectorTerm(DISCOVERY),),
    security_group_selector_terms=(SecurityGroupSelectorTerm(DISCOVERY),),
    uid="uid-default",
)


@dataclass(frozen=True, slots=True)
class Account:
    """The resources of the account, and the seam and the gate that inject faults."""

    network: Network
    seam: Ec2Seam
    strict: StrictAws


@contextmanager
def account(*, delayed: bool = True) -> Iterator[Account]:
    """Yield a separate account for one test. Without `delayed`, EC2 shows each new instance at once."""
    network, kept = _furnished()
    with strict_aws() as strict, Ec2Seam(embedded_catalog(REGION)) as seam:
        for backends, stored in zip(_FURNISHED, pickle.loads(kept), strict=True):  # noqa: S301
            backends[DEFAULT_ACCOUNT_ID].update(stored)
        publish_images(REGION, CLUSTER.version)
        if not delayed:
            strict.visibility.instances_after = timedelta()
        yield Account(network, seam, strict)


_FURNISHED: tuple[BackendDict[Any], ...] = (ec2_backends, iam_backends, eks_backends)


@cache
def _furnished() -> tuple[Network, bytes]:
    """Furnish an account once a process, by calls that take as long as many a test; return moto's state of it."""
    with strict_aws():
        endpoint = Endpoint(CLUSTER.endpoint, CLUSTER.ca_bundle)
        network = create_resources(
            client, CLUSTER.name, REGION, ZONES, CLUSTER.version, endpoint, NODECLASS.role
        )
        return network, pickle.dumps([dict(each[DEFAULT_ACCOUNT_ID]) for each in _FURNISHED])


@contextmanager
def strict_aws() -> Iterator[StrictAws]:
    """Yield an empty in-process AWS account that rejects what AWS rejects. Tests use this, never mock_aws alone."""
    _made_faster()
    with mock_aws(), StrictAws() as strict:
        yield strict


@cache
def _made_faster() -> ExitStack:
    """Give moto the shortcuts of `nodesmith local` until the process ends, so that it computes nothing twice."""
    kept = ExitStack()
    kept.enter_context(shortcuts())
    return kept


@lru_cache
def client(service: str) -> Any:
    """Return one client per service for all tests: moto answers with the account that is active."""
    return boto3.client(
        service,
        region_name=REGION,
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=EC2_CONFIG if service == "ec2" else None,
    )


@lru_cache
def unvalidated_client(service: str) -> Any:
    """Return a client that sends invalid requests too: tests check AWS's rejections, not botocore's."""
    return boto3.client(
        service,
        region_name=REGION,
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=Config(parameter_validation=False, retries={"total_max_attempts": 1}),
    )


@contextmanager
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set up an account with a deployed region, and set the environment of its functions in this process."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with strict_aws():
        for name, value in deploy(client, REGION).environment().items():
            monkeypatch.setenv(name, value)
        yield

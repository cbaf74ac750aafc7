"""What `python -m tests.benchmarks.resilience.localchaos` runs, and that it notices what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodesmith.model.karpenter.ownership import NODECLAIM_TAG
from tests.benchmarks.resilience.localchaos import SPEED, Served, combinations, served
from tests.patience import eventually, hurried


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("local"), hurried(SPEED)) as site:
        yield site


def test_leaked_instances_and_forgotten_pods_are_noticed(site: Served) -> None:
    assert site.violations() == []
    ec2 = site.system.aws.client("ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": NODECLAIM_TAG, "Value": "nobody"}]}]
    launched = ec2.run_instances(
        ImageId=image, MinCount=1, MaxCount=1, InstanceType="m5.large", TagSpecifications=tags
    )
    pod = {"name": "never", "namespace": "default"}
    huge = {"name": "app", "image": "busybox", "resources": {"requests": {"cpu": "2000"}}}
    site.objects.create(
        "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {"containers": [huge]}}
    )
    noticed = {"leaked instance of 'nobody'", "forgotten never"}
    eventually(lambda: noticed <= {*site.violations()})  # EC2 shows an instance some time after its launch
    site.objects.delete("pods", "never", "default")
    ec2.terminate_instances(InstanceIds=[launched["Instances"][0]["InstanceId"]])


def test_combinations_differ_and_end_within_minutes() -> None:
    drawn = combinations(30)
    assert len({*drawn}) == 30
    assert {len(each.faults) for each in drawn} == {1, 2}
    assert all(fault.seconds <= 300 for each in drawn for fault in each.faults)

"""A NodeClass is refused for its volumes exactly if EC2 would refuse its launch template."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodesmith.decisions.launch import launch_plan
from nodesmith.decisions.launch.validation import volume_obstacle
from nodesmith.model.nodeclasses.instancesettings import BlockDevice, BlockDeviceMapping
from nodesmith_local.aws.strict.ec2limits import check_volumes
from nodesmith_local.aws.strict.refusals import Refusal
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, options, status

OFFERED = options(["m5.large"], zones=["us-east-1a"])
TYPES = ("", "standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
EDGES = (1, 3, 4, 124, 125, 1024, 1025, 16_384, 16_385, 65_536)
sizes = st.one_of(st.sampled_from(EDGES), st.integers(1, 70_000)).map("{}Gi".format)
iops = (
    st.none()
    | st.sampled_from([99, 100, 2999, 3000, 64_000, 64_001, 80_000, 80_001, 256_000])
    | st.integers(0, 300_000)
)
throughputs = st.none() | st.sampled_from([124, 125, 750, 751, 2000, 2001]) | st.integers(0, 3000)
volumes = st.builds(
    BlockDevice,
    volume_size=sizes,
    volume_type=st.sampled_from(TYPES),
    iops=iops,
    throughput=throughputs,
    snapshot_id=st.sampled_from(["", "snap-1"]),
)
# Names that no instance boots from: whether an image boots from a volume, a launch template does not say.
mappings = st.lists(
    st.builds(BlockDeviceMapping, st.sampled_from(["/dev/sdf", "/dev/sdg", "/dev/sdh"]), volumes), max_size=3
)


@given(mappings)
@example([BlockDeviceMapping("/dev/sdf", BlockDevice("40Gi", "gp3", iops=20_000))])
@example([BlockDeviceMapping("/dev/sdf", BlockDevice("39Gi", "gp3", iops=20_000))])
def test_volumes_are_refused_exactly_if_ec2_refuses_them(found: list[BlockDeviceMapping]) -> None:
    nodeclass = replace(NODECLASS, block_device_mappings=tuple(found))
    _, (template,) = launch_plan(CLAIM, OFFERED, nodeclass, status(nodeclass), CLUSTER)
    written = template.data.get("BlockDeviceMappings", ()) if found else ()
    if volume_obstacle(found) is None:
        check_volumes(written)
    else:
        with pytest.raises(Refusal):
            check_volumes(written)

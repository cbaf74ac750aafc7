"""Whatever an EC2NodeClass contains, if nothing keeps it from Ready, EC2's model accepts what is launched from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import botocore.session
from botocore.validate import ParamValidator
from hypothesis import assume, example, given
from hypothesis import strategies as st

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.ec2.fleetcalls import fleet_request
from nodesmith.decisions.launch import launch_obstacle, launch_plan
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.ownership import tag_list
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration, parse_nodeclass
from nodesmith.model.nodeclasses.status import Image
from nodesmith.model.policies import NodeSettings
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS
from nodesmith_local.aws.strict.ec2limits import check_ec2
from nodesmith_local.aws.strict.models import check_model
from nodesmith_local.aws.strict.refusals import AwsRequest
from tests import builders
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, status
from tests.property.model.fields import values

OPTIONAL = (
    "associatePublicIPAddress",
    "ipPrefixCount",
    "tags",
    "kubelet",
    "blockDeviceMappings",
    "instanceStorePolicy",
    "networkInterfaces",
    "detailedMonitoring",
    "metadataOptions",
    "connectionTracking",
    "cpuOptions",
    "context",
)
FIRST = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
specs = st.fixed_dictionaries(
    {}, optional={name: values(EC2_NODE_CLASS.spec.fields[name]) for name in OPTIONAL}
)
FAMILIES = {
    "ipv4": CLUSTER,
    "ipv6": replace(CLUSTER, ip_family="ipv6", service_cidr="fd12::/108", dns_ip="fd12::a"),
}


@cache
def model(operation: str) -> Any:
    return botocore.session.get_session().get_service_model("ec2").operation_model(operation).input_shape


def accept(operation: str, parameters: Mapping[str, Any]) -> None:
    """Fail if botocore's client or the simulated EC2 refuses a call."""
    report = ParamValidator().validate(parameters, model(operation))
    assert not report.has_errors(), report.generate_report()
    request = AwsRequest("ec2", operation, parameters)
    check_model(request)
    check_ec2(request)


@given(specs, st.sampled_from(sorted(FAMILIES)), st.sampled_from(["m5d.large", "p5.48xlarge", "m8i.large"]))
@example({"networkInterfaces": [FIRST, {**FIRST, "deviceIndex": 1}], "ipPrefixCount": 1}, "ipv6", "m5d.large")
@example({"connectionTracking": {"udpTimeout": 45}, "context": "context-1"}, "ipv4", "p5.48xlarge")
def test_ec2_accepts_what_is_launched_from_a_nodeclass_without_obstacles(
    spec: Mapping[str, Any], family: str, instance_type: str
) -> None:
    nodeclass = parse_nodeclass(builders.nodeclass_manifest(**spec)).value
    assume(nodeclass is not None)
    assert nodeclass is not None
    cluster = FAMILIES[family]
    assume(launch_obstacle(nodeclass, cluster) is None)
    settings = NodeSettings().in_cluster(cluster)
    types = instance_types(embedded_catalog(), NodeConfiguration.of(nodeclass), settings)
    kind = next(each for each in types if each.name == instance_type)
    resolved = status(nodeclass, images=(Image("ami-any"),))
    offering = Offering("us-east-1a", "on-demand", 1.0)
    request, (template,) = launch_plan(CLAIM, [(kind, offering)], nodeclass, resolved, cluster)

    tags = [{"ResourceType": "launch-template", "Tags": tag_list(template.tags)}]
    wanted = {"LaunchTemplateName": template.name, "LaunchTemplateData": template.data}
    accept("CreateLaunchTemplate", {**wanted, "TagSpecifications": tags})
    accept("CreateFleet", fleet_request(request, cluster.name))
    assert kind.allocatable.pods >= 0

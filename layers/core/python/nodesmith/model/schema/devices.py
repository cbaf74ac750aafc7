"""Schema of an EC2NodeClass's fields about the instance itself: volumes, network interfaces, metadata service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.schema.fields import INT32, Array, Boolean, Integer, Object, Rule, Text

ENABLED = ("enabled", "disabled")

_EBS = Object(
    {
        "deleteOnTermination": Boolean("Whether the volume is deleted with the instance."),
        "encrypted": Boolean("Whether the volume is encrypted."),
        "iops": Integer("I/O operations per second, for gp3, io1 and io2."),
        "kmsKeyID": Text("KMS key that encrypts the volume."),
        "snapshotID": Text("Snapshot that the volume is created from."),
        "throughput": Integer("MiB per second, for gp3."),
        "volumeInitializationRate": Integer(
            "MiB per second at which the snapshot's blocks are downloaded to the volume.", 100, 300
        ),
        "volumeSize": Text(
            "Size of the volume.",
            "^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|"
            "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|"
            "([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$",
            "100Gi",
        ),
        "volumeType": Text(
            "Type of the volume.", enum=("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
        ),
    },
    "The EBS volume behind the device.",
    rules=(
        Rule(
            "has(self.snapshotID) || has(self.volumeSize)",
            "volumeSize or snapshotID is needed",
            lambda ebs: "snapshotID" in ebs or "volumeSize" in ebs,
        ),
        Rule(
            "!has(self.volumeInitializationRate) || has(self.snapshotID)",
            "volumeInitializationRate needs a snapshotID",
            lambda ebs: "volumeInitializationRate" not in ebs or "snapshotID" in ebs,
        ),
    ),
)
BLOCK_DEVICES = Array(
    Object(
        {
            "deviceName": Text("Name of the device, for example /dev/xvda."),
            "rootVolume": Boolean("Whether the kubelet's directory is on this volume."),
            "ebs": _EBS,
        }
    ),
    "Volumes of every node. Defaults to those of the AMI family.",
    max_items=50,
    rules=(
        Rule(
            "self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1",
            "only one mapping may be the rootVolume",
            lambda mappings: sum(m.get("rootVolume", False) for m in mappings) <= 1,
        ),
    ),
)


def _cards(interfaces: list[Mapping[str, Any]], kind: str) -> list[int]:
    return [each["networkCardIndex"] for each in interfaces if each["interfaceType"] == kind]


def _has_a_primary(interfaces: list[Mapping[str, Any]]) -> bool:
    first = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    return not interfaces or first in interfaces


NETWORK_INTERFACES = Array(
    Object(
        {
            "networkCardIndex": Integer("Index of the network card.", 0, INT32),
            "deviceIndex": Integer("Index of the device on the network card.", 0, INT32),
            "interfaceType": Text(
                "Type of the interface: interface, or efa-only for EFA traffic only.",
                enum=("interface", "efa-only"),
            ),
        },
        required=("networkCardIndex", "deviceIndex", "interfaceType"),
    ),
    "Network interfaces of every node. Defaults to those that the instance type needs.",
    max_items=150,
    rules=(
        Rule(
            "self.size() == 0 || self.exists(x, x.networkCardIndex == 0 && x.deviceIndex == 0 && "
            "x.interfaceType == 'interface')",
            "one of them must be an interface at card 0, device 0",
            _has_a_primary,
        ),
        Rule(
            "self.all(x, self.exists_one(y, x.networkCardIndex == y.networkCardIndex && "
            "x.deviceIndex == y.deviceIndex))",
            "each card and device may occur only once",
            lambda each: len({(x["networkCardIndex"], x["deviceIndex"]) for x in each}) == len(each),
        ),
        Rule(
            "self.all(x, x.interfaceType != 'efa-only' || self.exists_one(y, y.interfaceType == 'efa-only' && "
            "x.networkCardIndex == y.networkCardIndex))",
            "a card may have only one efa-only interface",
            lambda each: len(set(_cards(each, "efa-only"))) == len(_cards(each, "efa-only")),
        ),
    ),
)

_METADATA_DEFAULTS = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 1,
    "httpTokens": "required",
}
METADATA = Object(
    {
        "httpEndpoint": Text(
            "Whether the metadata service is available on nodes.", enum=ENABLED, default="enabled"
        ),
        "httpProtocolIPv6": Text(
            "Whether the metadata service answers over IPv6.", enum=ENABLED, default="disabled"
        ),
        "httpPutResponseHopLimit": Integer(
            "Network hops that responses may travel; 1 keeps pods out.", 1, 64, default=1
        ),
        "httpTokens": Text(
            "Whether requests need a session token.", enum=("required", "optional"), default="required"
        ),
    },
    "The instance metadata service of every node.",
    default=_METADATA_DEFAULTS,
)
_TIMEOUTS = ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")
CONNECTION_TRACKING = Object(
    {
        "tcpEstablishedTimeout": Integer("Idle timeout of TCP connections, in seconds.", 60, 432000),
        "udpStreamTimeout": Integer(
            "Idle timeout of UDP flows with more than one request and response, in seconds.", 60, 180
        ),
        "udpTimeout": Integer("Idle timeout of other UDP flows, in seconds.", 30, 60),
    },
    "Idle timeouts of tracked connections.",
    rules=(
        Rule(
            " || ".join(f"has(self.{name})" for name in _TIMEOUTS),
            f"at least one of {', '.join(_TIMEOUTS)} is needed",
            bool,
        ),
    ),
)

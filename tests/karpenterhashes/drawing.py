"""Random NodePools and EC2NodeClasses: every field, absent, empty, zero or set, in every spelling."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

Manifest = dict[str, Any]
Draw = Callable[[Random], Any]

_WORDS = 'a web blue gpu team-7 x.y Zürich 日本 🚀 \u2028 <&> "quoted" \\ tab\there'.split(" ")
_LABEL_VALUES = ("", "a", "web", "blue-1", "x.y_z", "7")
_KEYS = ("example.com/team", "tier", "a.b.example.com/c", "dedicated", "example.com/gpu")
_DURATIONS = ("0s", "30s", "90m", "1h30m", "720h", "43200m", "336h0m0s", "1h1h")
_GRACES = ("0s", "90s", "1m30s", "1.5m", "100ms", "0.1s", "2h45m0.123456789s", "3us", "7ns", "0.3333333h")
_QUANTITIES = ("100m", "0.1", "1Gi", "1024Mi", "1073741824", "0", "2e3")
_SIZES = ("1Gi", "20Gi", "1024Gi", "2048Gi", "1025Gi", "1G", "1000G", "1500G", "64000G", "1Ti", "58Ti", "64T")
_SIGNALS = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "pid.available")
_RESERVED = ("cpu", "memory", "ephemeral-storage", "pid")
_FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025", "Custom")
_TIMES = (
    "2026-01-31T12:00:00Z",
    "2026-01-31T12:00:00+02:00",
    "1999-12-31T23:59:59.25Z",
    "1970-01-01T00:00:00Z",
)


def nodepool(random: Random, name: str) -> Manifest:
    """Draw a NodePool."""
    spec: Manifest = {"template": _template(random)}
    if random.random() < 0.2:
        spec["replicas"] = random.randrange(5)
    elif random.random() < 0.5:
        spec |= {"weight": random.randint(1, 100), "limits": {"cpu": random.choice(_QUANTITIES), "nodes": 3}}
    if random.random() < 0.6:
        budget = {"nodes": "20%", "reasons": ["Drifted"], "schedule": "@daily", "duration": "8h"}
        spec["disruption"] = _some(
            random,
            {
                "consolidateAfter": _one_of(("Never", *_DURATIONS)),
                "consolidationPolicy": _one_of(("WhenEmpty", "WhenEmptyOrUnderutilized")),
                "budgets": _one_of(([], [budget], [{"nodes": "1"}, budget])),
            },
        )
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def nodeclass(random: Random, name: str) -> Manifest:
    """Draw an EC2NodeClass."""
    selector = [{"tags": {"karpenter.sh/discovery": random.choice(_KEYS)}}]
    spec: Manifest = {"subnetSelectorTerms": selector, "securityGroupSelectorTerms": selector}
    who = random.choice(("role", "instanceProfile"))
    spec |= {who: random.choice(_WORDS)} | _images(random) | _some(random, _NODECLASS)
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def ca_bundle(random: Random) -> str:
    """Draw the CA bundle of a cluster, in base64; empty for none."""
    return random.choice(("", "Q0E=", base64.b64encode(random.randbytes(random.randrange(99))).decode()))


def _template(random: Random) -> Manifest:
    pairs = [(key, effect) for key in _KEYS for effect in ("NoSchedule", "NoExecute", "PreferNoSchedule")]
    random.shuffle(pairs)
    requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
    spec: Manifest = {
        "requirements": random.choice(
            ([], [requirement], [requirement, {"key": "tier", "operator": "Exists"}])
        ),
        "nodeClassRef": {
            "group": "karpenter.k8s.aws",
            "kind": "EC2NodeClass",
            "name": random.choice(("default", "gpu", "日本")),
        },
        **_some(
            random,
            {
                "taints": lambda r: [_taint(r, *pairs.pop()) for _ in range(r.randrange(4))],
                "startupTaints": lambda r: [_taint(r, *pairs.pop()) for _ in range(r.randrange(4))],
                "expireAfter": _one_of((None, "Never", *_DURATIONS)),
                "terminationGracePeriod": _one_of(_DURATIONS),
            },
        ),
    }
    metadata = _some(
        random, {"labels": _map(_KEYS, _LABEL_VALUES), "annotations": _map(_KEYS, ("", *_WORDS))}
    )
    return {"spec": spec} if random.random() < 0.2 else {"metadata": metadata, "spec": spec}


def _taint(random: Random, key: str, effect: str) -> Manifest:
    rest: Mapping[str, Draw] = {"value": _one_of(_LABEL_VALUES), "timeAdded": _one_of(_TIMES)}
    return {"key": key, "effect": effect, **_some(random, rest)}


def _images(random: Random) -> Manifest:
    family = random.choice(_FAMILIES)
    if family == "Custom" or random.random() < 0.3:
        return {"amiSelectorTerms": [{"id": "ami-0a1b2c"}, {"tags": {"a": "b"}}], "amiFamily": family}
    images: Manifest = {"amiSelectorTerms": [{"alias": f"{family.lower()}@latest"}]}
    return images | _some(random, {"amiFamily": _one_of((family, "Custom"))})


def _block_devices(random: Random) -> list[Manifest]:
    devices = [_some(random, _BLOCK_DEVICE) for _ in range(random.randrange(4))]
    if devices and random.random() < 0.3:
        devices[0]["rootVolume"] = True
    if len(devices) > 1 and random.random() < 0.4:
        devices[-1] = {key: value for key, value in devices[0].items() if key != "rootVolume"}
        devices.append(devices[-1])
    random.shuffle(devices)
    return devices


def _ebs(random: Random) -> Manifest:
    ebs = _some(random, _EBS)
    if "snapshotID" not in ebs:
        ebs.pop("volumeInitializationRate", None)
        ebs["volumeSize"] = random.choice(_SIZES)
    return ebs


def _interfaces(random: Random) -> list[Manifest]:
    interfaces = [
        {
            "networkCardIndex": card,
            "deviceIndex": 0,
            "interfaceType": "interface" if card == 0 else "efa-only",
        }
        for card in range(random.randrange(4))
    ]
    random.shuffle(interfaces)
    return interfaces


def _kubelet(random: Random) -> Manifest:
    kubelet = _some(random, _KUBELET)
    if random.random() < 0.4:
        signals = random.sample(_SIGNALS, random.randrange(3))
        kubelet["evictionSoft"] = {signal: random.choice(("5%", "100Mi")) for signal in signals}
        kubelet["evictionSoftGracePeriod"] = {signal: random.choice(_GRACES) for signal in signals}
    return kubelet


def _connections(random: Random) -> Manifest:
    tracked = {"tcpEstablishedTimeout": 60, "udpStreamTimeout": 180, "udpTimeout": random.randint(30, 60)}
    return dict(random.sample(list(tracked.items()), random.randint(1, 3)))


def _some(random: Random, fields: Mapping[str, Draw]) -> Manifest:
    """Draw some of the fields; sometimes none, sometimes all."""
    share = random.choice((0.0, 0.3, 0.6, 1.0))
    return {name: draw(random) for name, draw in fields.items() if random.random() < share}


def _one_of(values: Sequence[Any]) -> Draw:
    return lambda random: random.choice(values)


def _map(keys: Sequence[str], values: Sequence[str]) -> Draw:
    return lambda random: {
        key: random.choice(values) for key in random.sample(keys, random.randrange(len(keys)))
    }


_BOOLEAN = _one_of((False, True))
_BLOCK_DEVICE: Mapping[str, Draw] = {
    "deviceName": _one_of(("/dev/xvda", "/dev/xvdb", "")),
    "rootVolume": lambda _: False,
    "ebs": _ebs,
}
_EBS: Mapping[str, Draw] = {
    "deleteOnTermination": _BOOLEAN,
    "encrypted": _BOOLEAN,
    "iops": _one_of((0, 3000, 16_000)),
    "kmsKeyID": _one_of(("", "alias/key")),
    "snapshotID": _one_of(("snap-1", "snap-2")),
    "throughput": _one_of((0, 125, 1000)),
    "volumeInitializationRate": _one_of((100, 300)),
    "volumeSize": _one_of(_SIZES),
    "volumeType": _one_of(("gp3", "io2", "standard")),
}
_KUBELET: Mapping[str, Draw] = {
    "clusterDNS": _one_of(([], ["10.0.0.10"], ["10.0.0.10", "10.0.0.11"], ["10.0.0.10", "10.0.0.10"])),
    "maxPods": _one_of((0, 1, 110, 2**31 - 1)),
    "podsPerCore": _one_of((0, 10)),
    "systemReserved": _map(_RESERVED, _QUANTITIES),
    "kubeReserved": _map(_RESERVED, _QUANTITIES),
    "evictionHard": _map(_SIGNALS, ("5%", "100Mi", "0.1Gi")),
    "evictionMaxPodGracePeriod": _one_of((0, 60)),
    "imageGCHighThresholdPercent": _one_of((80, 100)),
    "imageGCLowThresholdPercent": _one_of((0, 50)),
    "cpuCFSQuota": _BOOLEAN,
}
_METADATA: Mapping[str, Draw] = {
    "httpEndpoint": _one_of(("enabled", "disabled")),
    "httpProtocolIPv6": _one_of(("enabled", "disabled")),
    "httpPutResponseHopLimit": _one_of((1, 2, 64)),
    "httpTokens": _one_of((None, "required", "optional")),
}
_NODECLASS: Mapping[str, Draw] = {
    "capacityReservationSelectorTerms": _one_of(([], [{"id": "cr-0a1b2c"}])),
    "placementGroupSelector": _one_of(({"name": "spread"}, {"id": "pg-0a1b2c"})),
    "associatePublicIPAddress": _BOOLEAN,
    "ipPrefixCount": _one_of((0, 3)),
    "userData": _one_of(("", "#!/bin/sh\necho Grüße 日本\n", "x" * 300)),
    "tags": _map(("Name", "team", "日本", "a b"), ("", *_WORDS)),
    "kubelet": _kubelet,
    "blockDeviceMappings": _block_devices,
    "instanceStorePolicy": _one_of(("RAID0",)),
    "networkInterfaces": _interfaces,
    "detailedMonitoring": _BOOLEAN,
    "metadataOptions": lambda random: None if random.random() < 0.1 else _some(random, _METADATA),
    "connectionTracking": _connections,
    "context": _one_of(("", "arn:aws:ec2:context")),
    "cpuOptions": lambda random: _some(random, {"nestedVirtualization": _one_of(("enabled", "disabled"))}),
}

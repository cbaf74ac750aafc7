"""The deployment that the tests synthesise: a plain region, one with every option set, and three clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk.cx_api import CloudAssembly

from infra.application import application
from infra.functions.function import LAYERS, Code

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "111122223333"
REGION, PLAIN_REGION = "eu-west-1", "us-east-1"
PRIVATE = "private"
"""The name of a VPC in the tests' cdk.json."""
TOPIC = "arn:aws:sns:eu-west-1:111122223333:on-call"
PAYER_ROLE = "arn:aws:iam::999988887777:role/read-commitments"
VPC, OTHER_VPC = "vpc-0a0a0a0a0a0a0a0a0", "vpc-0b0b0b0b0b0b0b0b0"
VOLUME_KEY = "arn:aws:kms:eu-west-1:999988887777:key/1234abcd-12ab-34cd-56ef-1234567890ab"
REGIONS: dict[str, Any] = {
    REGION: {
        "nodeRoles": ["gpu-nodes"],
        "kmsKeyArns": [VOLUME_KEY],
        "ssmParameters": ["/golden/image", "team-image"],
        "alarmTopicArn": TOPIC,
        "interruptionConcurrency": 5,
        "isolated": True,
        "tracing": True,
        "dashboard": True,
        "spendingLimits": {"all": {"usdPerHour": "40", "usdPerMonth": 20000}},
        "commitments": {"payerRoleArn": PAYER_ROLE, "share": 0.5},
        "vpcs": {PRIVATE: {"subnetIds": ["subnet-0a0a0a0a"], "securityGroupIds": ["sg-0b0b0b0b"]}},
    }
}
CLUSTERS: list[dict[str, Any]] = [
    {
        "name": "alpha",
        "region": REGION,
        "vpcId": VPC,
        "nodeRoles": ["KarpenterNodeRole-alpha", "gpu-nodes"],
        "settings": {"RESERVED_ENIS": "1"},
    },
    {"name": "beta", "region": REGION, "vpcId": OTHER_VPC, "reachedFrom": PRIVATE},
    {"name": "gamma", "region": PLAIN_REGION, "vpcId": VPC},
]


def synthesise(
    code: Code, clusters: Sequence[Mapping[str, Any]], output: Path, regions: Mapping[str, Any] = REGIONS
) -> Path:
    """Synthesise as `python app.py` does, with cdk.json's context except regions and clusters; return `output`."""
    assembled(code, clusters, output, regions)
    return output


def assembled(
    code: Code, clusters: Sequence[Mapping[str, Any]], output: Path, regions: Mapping[str, Any]
) -> CloudAssembly:
    """Synthesise into `output`, and return all templates."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    return application({**context, "regions": regions, "clusters": clusters}, code, output).synth()


def code_on_empty_layers(folder: Path) -> Code:
    """Return the real functions, on placeholder layers: no template depends on the content of layers."""
    layers = {name: folder / name for name in LAYERS}
    for name, layer in layers.items():
        (layer / "python").mkdir(parents=True, exist_ok=True)
        (layer / "python" / f"{name}.txt").write_text(name)
    return Code(ROOT / "functions", layers)

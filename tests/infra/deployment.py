"""What the tests deploy, on paper: two clusters in one region, one of them with everything that can be asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infra.application import application
from infra.functions import Code

ROOT = Path(__file__).resolve().parents[2]
REGION = "eu-west-1"
TALKING = [
    "disruption",
    "lifecycle",
    "termination",
    "readiness",
    "observation",
    "repair",
    "garbagecollection",
]
"""The concerns that talk to the API server, in the order of the stack."""
TOPIC = "arn:aws:sns:eu-west-1:111122223333:on-call"
VPC = "vpc-0a0a0a0a0a0a0a0a0"
VOLUME_KEY = "arn:aws:kms:eu-west-1:999988887777:key/1234abcd-12ab-34cd-56ef-1234567890ab"
CLUSTERS: list[dict[str, Any]] = [
    {"name": "alpha", "region": REGION, "vpcId": VPC, "nodeRoles": ["alpha-nodes", "alpha-gpu-nodes"]},
    {
        "name": "beta",
        "region": REGION,
        "vpcId": VPC.replace("a", "b"),
        "kmsKeyArns": [VOLUME_KEY],
        "ssmParameters": ["/golden/image", "team-image"],
        "vpc": {"subnetIds": ["subnet-0a0a0a0a"], "securityGroupIds": ["sg-0b0b0b0b"]},
        "settings": {"RESERVED_ENIS": "1", "ISOLATED_VPC": "true"},
        "alarmTopicArn": TOPIC,
        "interruptionConcurrency": 5,
    },
]


def synthesise(code: Code, clusters: list[dict[str, Any]], output: Path) -> Path:
    """Synthesise as `python app.py` does, with cdk.json's context but for the clusters; give `output`."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    application({**context, "clusters": clusters}, code, output).synth()
    return output

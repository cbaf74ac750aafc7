"""The API models in the vendor layer: everything that nodesmith calls, and little more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.model import ServiceModel

from layers.vendor.models import OPERATIONS, trimmed

ROOT = Path(__file__).resolve().parents[3]


def whole_model(service: str = "ec2") -> dict[str, Any]:
    """Return a service's model as botocore ships it."""
    loader: Any = botocore.session.get_session().get_component("data_loader")
    model: dict[str, Any] = loader.load_service_model(service, "service-2")
    return model


@pytest.mark.parametrize(
    ("service", "one"),
    [
        ("dynamodb", "TransactWriteItems"),
        ("ec2", "CreateFleet"),
        ("s3", "PutObject"),
        ("sqs", "SendMessage"),
        ("ssm", "GetParameter"),
    ],
)
def test_every_operation_that_the_code_calls_is_in_the_layer(service: str, one: str) -> None:
    source = "\n".join(p.read_text() for p in ROOT.glob("layers/core/python/nodesmith/adapters/**/*.py"))
    words = set(re.findall(r"[a-z_]+", source))
    asked = {name for name in whole_model(service)["operations"] if xform_name(name) in words}

    assert one in asked
    assert asked <= OPERATIONS[service]


def test_a_kept_operation_has_every_shape_it_reaches() -> None:
    model = trimmed(whole_model(), OPERATIONS["ec2"])

    service = ServiceModel(model, "ec2")
    fleet: Any = service.operation_model("CreateFleet")

    overrides = fleet.input_shape.members["LaunchTemplateConfigs"].member.members["Overrides"].member
    assert overrides.members["InstanceType"].type_name == "string"
    assert fleet.output_shape.members["Errors"].member.members["ErrorCode"].type_name == "string"
    assert set(service.operation_names) == OPERATIONS["ec2"]


def test_unused_operations_and_shapes_are_left_out() -> None:
    whole, kept = whole_model(), trimmed(whole_model(), OPERATIONS["ec2"])

    assert len(kept["shapes"]) < len(whole["shapes"]) / 5
    assert kept["metadata"] == whole["metadata"]


def test_documentation_is_removed_but_a_field_of_that_name_stays() -> None:
    model = {
        "operations": {"Read": {"output": {"shape": "Out"}, "documentation": "<p>long</p>"}},
        "shapes": {
            "Out": {"type": "structure", "members": {"documentation": {"shape": "Text"}}},
            "Text": {"type": "string"},
            "Unused": {"type": "string"},
        },
    }

    assert trimmed(model, ["Read"]) == {
        "operations": {"Read": {"output": {"shape": "Out"}}},
        "shapes": {
            "Out": {"type": "structure", "members": {"documentation": {"shape": "Text"}}},
            "Text": {"type": "string"},
        },
    }

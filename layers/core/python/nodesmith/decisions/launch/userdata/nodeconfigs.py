"""NodeConfigs in users' user data, checked as nodeadm reads them.

Only validation does that: parsing YAML takes a library, and longer than a launch should.
"""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message
from typing import Any

from nodesmith.decisions.launch.userdata.al2023 import NODE_CONFIG_TYPE, own_parts
from nodesmith.decisions.launch.userdata.malformed import MalformedUserData, line_at

_API_VERSION = "node.eks.aws/v1alpha1"


def check_node_configs(text: str) -> None:
    """Raise MalformedUserData for the first NodeConfig that nodeadm could not read."""
    for config in _node_configs(text):
        begins = line_at(text, max(0, text.find(config.strip("\n")))) - 1
        lead = len(config) - len(config.lstrip("\n"))
        parsed = _parsed(config, begins - lead)
        for name, wanted in (("apiVersion", _API_VERSION), ("kind", "NodeConfig")):
            if parsed.get(name) != wanted:
                raise MalformedUserData(
                    f"{name} of the NodeConfig is {parsed.get(name)!r}: write {wanted}", begins + 1
                )
        if not isinstance(parsed.get("spec", {}), dict):
            raise MalformedUserData("spec of the NodeConfig must be a map", begins + 1)


def _node_configs(text: str) -> Iterator[str]:
    for outer in own_parts(text):
        yield from (_payload(each) for each in outer.walk() if each.get_content_type() == NODE_CONFIG_TYPE)


def _payload(message: Message) -> str:
    payload = message.get_payload(decode=True)
    return payload.decode(errors="replace") if isinstance(payload, bytes) else str(message.get_payload())


def _parsed(config: str, lines_before: int) -> dict[str, Any]:
    import yaml  # only NodeClasses with a NodeConfig of their own need it

    try:
        parsed = yaml.safe_load(config)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = lines_before + mark.line + 1 if mark else 0
        raise MalformedUserData(f"the NodeConfig is not YAML: {error.problem}", line) from None
    except (yaml.YAMLError, ValueError) as error:
        raise MalformedUserData(f"the NodeConfig is not YAML: {error}") from None
    except RecursionError:
        raise MalformedUserData("the NodeConfig is nested too deeply") from None
    if not isinstance(parsed, dict):
        raise MalformedUserData("the NodeConfig must be a map", lines_before + 1)
    return parsed

"""NodeConfigs in users' user data, checked as nodeadm reads them.

Only validation does that: parsing YAML takes a library, and longer than a launch should.
"""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message

from nodesmith.decisions.launch.userdata.al2023 import NODE_CONFIG_TYPE, own_parts
from nodesmith.decisions.launch.userdata.malformed import MalformedUserData, line_at

_A_MAP, _NULL = "{}", "tag:yaml.org,2002:null"
_API_VERSION = "node.eks.aws/v1alpha1"


def check_node_configs(text: str) -> None:
    """Raise MalformedUserData for the first NodeConfig that nodeadm could not read."""
    for config in _node_configs(text):
        begins = line_at(text, max(0, text.find(config.strip("\n"))))
        before = begins - 1 - (len(config) - len(config.lstrip("\n")))
        fields = _fields(config, before)
        for name, wanted in (("apiVersion", _API_VERSION), ("kind", "NodeConfig")):
            value, line = fields.get(name, (None, 0))
            if value != wanted:
                found = "missing" if value is None else repr(value)
                raise MalformedUserData(
                    f"{name} of the NodeConfig is {found}: write {wanted}", line or begins
                )
        spec, line = fields.get("spec", (_A_MAP, 0))
        if spec != _A_MAP:
            raise MalformedUserData("spec of the NodeConfig must be a map", line)


def _node_configs(text: str) -> Iterator[str]:
    for outer in own_parts(text):
        yield from (_payload(each) for each in outer.walk() if each.get_content_type() == NODE_CONFIG_TYPE)


def _payload(message: Message) -> str:
    payload = message.get_payload(decode=True)
    return payload.decode(errors="replace") if isinstance(payload, bytes) else str(message.get_payload())


def _fields(config: str, lines_before: int) -> dict[str, tuple[str, int]]:
    """Return the top-level fields, each with its text (`_A_MAP` for a map or null) and its line.

    Only the nodes are composed. To construct values could take any amount of memory: merge keys multiply.
    """
    import yaml  # only NodeClasses with a NodeConfig of their own need it

    try:
        node = yaml.compose(config, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = lines_before + mark.line + 1 if mark else 0
        raise MalformedUserData(f"the NodeConfig is not YAML: {error.problem}", line) from None
    except (yaml.YAMLError, ValueError) as error:
        raise MalformedUserData(f"the NodeConfig is not YAML: {error}") from None
    except RecursionError:
        raise MalformedUserData("the NodeConfig is nested too deeply") from None
    if not isinstance(node, yaml.MappingNode):
        raise MalformedUserData("the NodeConfig must be a map", lines_before + 1)
    return {
        str(key.value): (
            _A_MAP if isinstance(value, yaml.MappingNode) or value.tag == _NULL else str(value.value)[:40],
            lines_before + key.start_mark.line + 1,
        )
        for key, value in node.value
    }

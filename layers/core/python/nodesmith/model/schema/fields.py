"""The building blocks from which kinds are described, and the selectors of an EC2NodeClass built from them.

All of it is plain data, read by `reading` and by `crds`. Each rule is written twice, in CEL for the API server and in
Python for nodesmith; a test compares the two. Patterns are anchored and mean the same to RE2 and to Python's re. The
classes are named tuples because every invocation imports this module, and a dataclass takes ten times as long to
define.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

INT32 = 2**31 - 1
INT64 = 2**63 - 1


class Rule(NamedTuple):
    """A condition on one value, which is `self` in CEL and the argument of `check`."""

    cel: str
    """Empty if the API server does not enforce the rule."""
    message: str
    """What would be right."""
    check: Callable[[Any], bool] | None
    """Returns whether the rule holds. None for a rule about a change, which only the API server sees."""
    advise: Callable[[Any], str | None] | None = None
    """Returns a better message for a value that breaks the rule, None for `message`."""
    fatal: bool = True
    field: str = ""
    """The field of `self` to report, if it is more specific than the whole value."""


class Text(NamedTuple):
    """A string."""

    doc: str = ""
    pattern: str = ""
    example: str = ""
    """Shown if a value does not match the pattern."""
    enum: tuple[str, ...] = ()
    min_length: int = 0
    max_length: int | None = None
    default: str | None = None
    format: str = ""
    rules: tuple[Rule, ...] = ()


class Integer(NamedTuple):
    """A whole number. `minimum` and `maximum` are inclusive."""

    doc: str = ""
    minimum: int | None = None
    maximum: int = INT64
    default: int | None = None


class Boolean(NamedTuple):
    """True or false."""

    doc: str = ""
    default: None = None


class Quantity(NamedTuple):
    """An amount that is not negative: a number or text such as `500m` or `2Gi`."""

    doc: str = ""
    default: None = None


class Array(NamedTuple):
    """A list. `unique_by` names the field by which the API server merges items."""

    of: Field
    doc: str = ""
    min_items: int = 0
    max_items: int | None = None
    unique_by: str = ""
    atomic: bool = False
    default: list[object] | None = None
    rules: tuple[Rule, ...] = ()


class Map(NamedTuple):
    """A map with free keys, whose values are all of one kind."""

    of: Field
    doc: str = ""
    keys: Text | None = None
    max_entries: int | None = None
    default: None = None
    rules: tuple[Rule, ...] = ()


class Object(NamedTuple):
    """A map with named fields. Unknown fields are kept in an `open` object, and reported and dropped in any other."""

    fields: Mapping[str, Field]
    doc: str = ""
    required: tuple[str, ...] = ()
    open: bool = False
    default: Mapping[str, object] | None = None
    rules: tuple[Rule, ...] = ()


Field: TypeAlias = Text | Integer | Boolean | Quantity | Array | Map | Object


class Kind(NamedTuple):
    """An API kind in the version that is stored."""

    group: str
    name: str
    plural: str
    spec: Object
    doc: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The apiVersion as manifests write it."""
        return f"{self.group}/{self.version}"


ALIAS_FAMILIES = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}
"""First half of an AMI alias → the family that determines the format of its user data."""

_TAGS = Map(
    Text(min_length=1),
    "Tags that the resource must have. The value * matches any value.",
    keys=Text(min_length=1),
    max_entries=20,
)


def _selects(*fields: str) -> Rule:
    return Rule(
        f"self.all(x, {' || '.join(f'has(x.{field})' for field in fields)})",
        f"each term needs one of {', '.join(fields)}",
        lambda terms: all(any(field in term for field in fields) for term in terms),
    )


def _alone(field: str, *others: str) -> tuple[Rule, Rule]:
    """Refuse lists in which every term combines `field` with `others`.

    If only some terms do, the AWS request for those uses `field` alone.
    """

    def mixes(term: Mapping[str, Any]) -> bool:
        return field in term and any(other in term for other in others)

    mixed = " || ".join(f"has(x.{other})" for other in others)
    message = f"{field} cannot be combined with other fields in a term; remove {', '.join(others)}"
    return (
        Rule(
            f"self.size() == 0 || !self.all(x, has(x.{field}) && ({mixed}))",
            message,
            lambda terms: not terms or not all(mixes(term) for term in terms),
        ),
        Rule("", message, lambda terms: not any(mixes(term) for term in terms), fatal=False),
    )


def _strictly_alone(field: str, *others: str) -> Rule:
    mixed = " || ".join(f"has(x.{other})" for other in others)
    return Rule(
        f"!self.exists(x, has(x.{field}) && ({mixed}))",
        f"{field} cannot be combined with other fields in a term; remove {', '.join(others)}",
        lambda terms: not any(field in term and any(other in term for other in others) for term in terms),
    )


SUBNETS = Array(
    Object({"tags": _TAGS, "id": Text("Subnet ID.", "^subnet-[0-9a-z]+$", "subnet-0a1b2c")}),
    "Subnets to launch into. A subnet is used if any term selects it.",
    min_items=1,
    max_items=30,
    rules=(_selects("tags", "id"), *_alone("id", "tags")),
)
SECURITY_GROUPS = Array(
    Object(
        {
            "tags": _TAGS,
            "id": Text("Security group ID.", "^sg-[0-9a-z]+$", "sg-0a1b2c"),
            "name": Text("Name of the security group, not its Name tag.", min_length=1),
        }
    ),
    "Security groups of every network interface.",
    min_items=1,
    max_items=30,
    rules=(_selects("tags", "id", "name"), *_alone("id", "tags", "name"), *_alone("name", "tags", "id")),
)
CAPACITY_RESERVATIONS = Array(
    Object(
        {
            "tags": _TAGS,
            "id": Text("Capacity reservation ID.", "^cr-[0-9a-z]+$", "cr-0a1b2c"),
            "ownerID": Text(
                "ID of the account that owns the capacity reservation.", "^[0-9]{12}$", "123456789012"
            ),
            "instanceMatchCriteria": Text(
                "Which instances may run in the capacity reservation.", enum=("open", "targeted")
            ),
        }
    ),
    "Capacity reservations to use before any other capacity.",
    max_items=30,
    rules=(
        _selects("tags", "id", "instanceMatchCriteria"),
        *_alone("id", "tags", "ownerID", "instanceMatchCriteria"),
    ),
)
PLACEMENT_GROUP = Object(
    {
        "name": Text("Name of the group.", min_length=1),
        "id": Text("ID of the group.", "^pg-[0-9a-z]+$", "pg-0a1b2c"),
    },
    "Placement group to launch into.",
    rules=(
        Rule(
            "has(self.name) != has(self.id)",
            "exactly one of name and id is needed",
            lambda group: ("name" in group) != ("id" in group),
        ),
    ),
)

_ALIAS_PATTERN = "^((al2|al2023|bottlerocket)@.+|windows(2019|2022|2025)@latest)$"
AMIS = Array(
    Object(
        {
            "alias": Text(
                "EKS image family and version, for example al2023@v20260115. Windows supports only latest.",
                _ALIAS_PATTERN,
                "al2023@latest",
                max_length=30,
            ),
            "tags": _TAGS,
            "id": Text("Image ID.", "^ami-[0-9a-z]+$", "ami-0a1b2c"),
            "name": Text("Image name. May contain wildcards.", min_length=1),
            "owner": Text("Owner of the image: an account ID, self or amazon."),
            "ssmParameter": Text("Name or ARN of the SSM parameter that holds the image ID.", min_length=1),
        }
    ),
    "Machine images. Each instance type uses the newest image that it supports.",
    min_items=1,
    max_items=30,
    rules=(
        _selects("tags", "id", "name", "alias", "ssmParameter"),
        _strictly_alone("id", "alias", "tags", "name", "owner"),
        _strictly_alone("alias", "id", "tags", "name", "owner"),
        Rule(
            "!self.exists(x, has(x.alias)) || self.size() == 1",
            "a term with alias must be the only one",
            lambda terms: len(terms) == 1 or not any("alias" in term for term in terms),
        ),
    ),
)


def family_matches_alias(spec: Mapping[str, Any]) -> bool:
    """Return whether amiFamily is Custom, absent, or the family of the alias."""
    family = spec.get("amiFamily", "Custom")
    aliases = [term["alias"] for term in spec["amiSelectorTerms"] if "alias" in term]
    return family == "Custom" or all(ALIAS_FAMILIES[alias.partition("@")[0]] == family for alias in aliases)

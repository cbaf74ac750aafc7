"""`python -m nodesmith_cli.manifests.crds [DIRECTORY]` writes the CRDs, by default to forwarder/crds."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nodesmith_formats.crds import custom_resource_definitions

_HEADER = (
    "# Made from nodesmith.model.schema by `python -m nodesmith_cli.manifests.crds`: change that, not this.\n"
)


def files() -> Mapping[str, str]:
    """Return the content of each file, keyed by file name."""
    return {_file_name(crd): _HEADER + _text(crd) for crd in custom_resource_definitions()}


def _file_name(crd: Mapping[str, Any]) -> str:
    return f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml"


class _Dumper(yaml.SafeDumper):
    """A dumper that repeats equal values, since anchors are hard to read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(crd: Mapping[str, Any]) -> str:
    return yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def main(arguments: list[str]) -> None:
    """Write the files to the directory named by the first argument."""
    directory = Path(arguments[0] if arguments else "forwarder/crds")
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")
        print(directory / name)


if __name__ == "__main__":
    main(sys.argv[1:])

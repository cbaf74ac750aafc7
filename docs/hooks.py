"""MkDocs hooks that build the site from pages that are written for the repository.

- README.md, CONTRIBUTING.md and other files of the root become pages; README's "Try it" becomes a page of its own.
- Folders in the navigation of mkdocs.yml stand for their pages; each has an index.
- Links work as on GitHub. A link to a file that is not a page leads to the repository, or becomes plain text if no
  repository is known, as on a laptop.
- Nested lists are indented as Python-Markdown requires.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CHANGELOG.md": "changelog.md",
}
IMAGES = "docs/images/"
CDK_SCHEMA, CDK_SCHEMA_SOURCE = "schemas/cdk.schema.json", "infra/cdk.schema.json"
TUTORIAL = "try-it.md"
FOLDERS = {
    "adr": "Architecture decisions",
    "concerns": "Concerns",
    "algorithms": "Algorithms",
    "reference": "Written from the code",
}

_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_NESTED = re.compile(r"^ {2,3}(?=(?:-|\d+\.) )", re.MULTILINE)
_TRY_IT = re.compile(r"^## Try it\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Expand folders in the navigation, and set the repository if it is known."""
    config.nav = expanded(config.nav)
    config.repo_url = repository()
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File  # only `make docs` installs it

    for uri, text in {**generated(), CDK_SCHEMA: (ROOT / CDK_SCHEMA_SOURCE).read_text()}.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Adapt a page from GitHub's Markdown to the site's."""
    return adapted(markdown, page.file.src_uri, config.repo_url)


def repository() -> str | None:
    """Return the repository's address in a GitHub workflow, or None elsewhere."""
    name = os.environ.get("GITHUB_REPOSITORY")
    return f"{os.environ['GITHUB_SERVER_URL']}/{name}" if name else None


def expanded(nav: list[Any]) -> list[Any]:
    """Return the navigation with each folder replaced by its index and its pages in order."""
    items = []
    for item in nav:
        title, content = next(iter(item.items())) if isinstance(item, dict) else (None, item)
        if isinstance(content, list):
            items.append({title: expanded(content)})
        elif not content.endswith("/"):
            items.append(item)
        elif pages := _pages_in(content[:-1]):
            items.append({title: [f"{content}index.md", *pages]})
    return items


def generated() -> dict[str, str]:
    """Return the pages that are not in docs/: their address in the site → their Markdown."""
    pages = {uri: (ROOT / name).read_text() for name, uri in ROOT_PAGES.items()}
    readme = pages["index.md"]
    found = _TRY_IT.search(readme)
    if found is None:
        raise ValueError("README.md has no section 'Try it'")
    pages[TUTORIAL] = f"# Try it\n{found[1]}"
    pages["index.md"] = (
        f"{readme[: found.start()]}[Try it]({TUTORIAL}) on your machine.\n\n{readme[found.end() :]}"
    )
    for folder, title in FOLDERS.items():
        if uris := _pages_in(folder):
            pages[f"{folder}/index.md"] = f"# {title}\n\n{''.join(map(_entry, uris))}"
    return pages


def adapted(markdown: str, uri: str, repository: str | None) -> str:
    """Return a page's Markdown with links and lists as the site needs them; code blocks stay as they are.

    A link to a file that does not exist stays, so that the strict build reports it.
    """
    parts = _FENCE.split(markdown)
    parts[::2] = [
        _NESTED.sub("    ", _LINK.sub(lambda link: _relinked(link, uri, repository), part))
        for part in parts[::2]
    ]
    return "".join(parts)


def _relinked(link: re.Match[str], uri: str, repository: str | None) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_source_of(uri)), target))
    if "://" in target or path.startswith("..") or not (ROOT / path).exists():
        return link[0]
    if (page := _page_of(path)) is not None:
        return f"[{text}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{anchor})"
    if path.startswith(IMAGES):
        return f"[{text}]({posixpath.relpath(path, posixpath.dirname(f'docs/{uri}'))})"
    if repository is None:
        return text
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"[{text}]({repository}/{kind}/HEAD/{path}{anchor})"


def _source_of(uri: str) -> str:
    """Return the file in the repository that a page's links are relative to."""
    sources = {page: name for name, page in ROOT_PAGES.items()} | {TUTORIAL: "README.md"}
    return sources.get(uri, f"docs/{uri}")


def _page_of(path: str) -> str | None:
    """Return the page or picture in the site for a file or folder of the repository, or None if it has none."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path == CDK_SCHEMA_SOURCE:
        return CDK_SCHEMA
    inside = path.removeprefix("docs/")
    if inside in FOLDERS:
        return f"{inside}/index.md"
    return inside if path.startswith("docs/") and path.endswith((".md", ".png", ".json")) else None


def _pages_in(folder: str) -> list[str]:
    found: Iterable[Path] = (ROOT / "docs" / folder).glob("*.md")
    return sorted(path.relative_to(ROOT / "docs").as_posix() for path in found)


def _entry(uri: str) -> str:
    """Return a line of a folder's index: the page's title, with its link."""
    title = (ROOT / "docs" / uri).read_text().partition("\n")[0].removeprefix("# ")
    return f"- [{title}]({posixpath.basename(uri)})\n"

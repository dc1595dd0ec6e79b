"""Hooks for mkdocs that add pages to the site: the pages at the top of the repository, results, and the API reference.

Links in the pages are correct in the repository. On the site, files from outside docs/ have other paths.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
#: Pages at the top of the repository.
_TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)")
_RESULTS = ("benchmarks/results/", "qa/results/")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages at the top of the repository, each page of results that a page links, and the API reference."""
    pages = [*_TOP, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    results = {target for page in pages for target in _links(page)}
    results |= {target for page in results if page.endswith(".md") for target in _links(page)}
    for path in (*_TOP, *sorted(one for one in results if one.startswith(_RESULTS))):
        level = InclusionLevel.INCLUDED if path in _TOP else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, _on_site(path), abs_src_path=str(ROOT / path), inclusion=level))
    files.append(File.generated(config, "api.md", content=_api()))
    for file in files:
        if file.src_uri.startswith("rules/"):
            file.inclusion = InclusionLevel.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Change the links of a page so that they lead to the files on the site."""
    uri = page.file.src_uri
    elsewhere = (*_TOP, *(f"{folder}{PurePosixPath(uri).name}" for folder in _RESULTS))
    here = next((path for path in elsewhere if _on_site(path) == uri), f"docs/{uri}")

    def moved(link: re.Match[str]) -> str:
        target = normpath(join(str(PurePosixPath(here).parent), link["target"]))
        if not (ROOT / target).is_file():
            return link[0]
        return f"{link[1]}{relpath(_on_site(target), str(PurePosixPath(uri).parent))}{link['anchor'] or ''})"

    return _LINK.sub(moved, markdown).replace("<details>", '<details markdown="1">')


def _links(page: str) -> Iterator[str]:
    """Yield the path of each file of the repository that a page links."""
    for link in _LINK.finditer((ROOT / page).read_text(encoding="utf-8")):
        target = normpath(join(str(PurePosixPath(page).parent), link["target"]))
        if (ROOT / target).is_file():
            yield target


def _on_site(path: str) -> str:
    """Return the path on the site of a file of the repository."""
    special = {"README.md": "index.md", "CONTRIBUTING.md": "contribute.md", "LICENSE": "LICENSE.txt"}
    return special.get(path, path.removeprefix("docs/").removeprefix("benchmarks/"))


def _api() -> str:
    """Return a page with every public name of the runtime, by the sub-package that defines it."""
    tree = ast.parse((ROOT / "chirpid_patch" / "__init__.py").read_text(encoding="utf-8"))
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("chirpid_patch."):
            modules |= {one.name: str(node.module) for one in node.names}
    (listed,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == ["__all__"]
    )
    parts = ["# API of chirpid_patch", "Names that are imported from `chirpid_patch` itself."]
    for part in sorted({modules[name].split(".")[1] for name in listed if name in modules}):
        parts.append(f"## {part}")
        parts += [f"::: {modules[name]}.{name}" for name in listed if modules.get(name, "").split(".")[1:2] == [part]]
    return "\n\n".join(parts) + "\n"

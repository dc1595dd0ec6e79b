"""The documentation as a site: `make site`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT


def entries(navigation: Any) -> Iterator[str]:
    """Yield the pages of a navigation, in order."""
    for entry in navigation:
        (value,) = entry.values()
        if isinstance(value, str):
            yield value
        else:
            yield from entries(value)


def test_the_navigation_leads_to_every_page_once() -> None:
    listed = list(entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}

    assert len(listed) == len(set(listed))
    assert pages <= set(listed)
    assert set(listed) - pages == {"index.md", "api.md", "CHANGELOG.md", "contribute.md", "SECURITY.md"}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (make site)")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed (make site)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="rules.html"' in home and 'href="results/foreign.html"' in home
    assert "OptimalDataLoaderFactory" in (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert (tmp_path / "site" / "rules" / "CHP001.html").is_file()

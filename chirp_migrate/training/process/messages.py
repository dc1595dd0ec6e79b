"""Files that two processes talk by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["write_json"]


def write_json(path: Path, values: Any) -> None:
    """Write JSON next to ``path`` and move it there, so that a reader never sees half a file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(values), encoding="utf-8")
    partial.replace(path)

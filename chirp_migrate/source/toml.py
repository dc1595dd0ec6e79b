"""Parse TOML with the standard library, or with ``tomli`` before Python 3.11."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML document.

    Raises:
        ValueError: the text is not TOML.
    """
    content: dict[str, Any] = tomllib.loads(text)
    return content

"""Both packages ask what a system can do, never what it is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT

SOURCES = sorted(path for package in ("chirp_migrate", "chirpid_patch") for path in (ROOT / package).rglob("*.py"))
NAMES_OF_PLATFORMS = {"os": {"name", "uname"}, "sys": {"platform", "getwindowsversion"}}
#: What `platform` tells is printed beside measurements; nothing is decided by it.
DESCRIBED = {"system", "platform", "uname", "release", "version", "mac_ver", "win32_ver", "libc_ver"}


def questions(text: str) -> Iterator[str]:
    """Every place of a module that reads the platform's name, or decides by it."""
    tree = ast.parse(text)
    decisions = [node for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.BoolOp | ast.Match)]
    decisions += [node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp | ast.While)]
    decided = {id(part) for decision in decisions for part in ast.walk(decision)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                asks = name in NAMES_OF_PLATFORMS.get(module, ())
                asks |= module == "platform" and name in DESCRIBED and id(node) in decided
                if asks:
                    yield f"{node.lineno}: {module}.{name}"
            case ast.ImportFrom(module="os" | "sys" | "platform" as module, names=names):
                forbidden = NAMES_OF_PLATFORMS.get(module, DESCRIBED)
                yield from (f"{node.lineno}: {module}.{one.name}" for one in names if one.name in forbidden)


@pytest.mark.parametrize(
    "text",
    [
        "import os\nfolders = os.name == 'nt'",
        "import sys\nif sys.platform.startswith('linux'): pass",
        "from sys import platform",
        "from os import name as system",
        "import platform\nx = 1 if platform.system() == 'Darwin' else 2",
        "import platform\nmatch platform.system():\n    case 'Linux': pass",
    ],
)
def test_questions_for_the_name_are_found(text: str) -> None:
    assert len(list(questions(text))) == 1


def test_printing_the_name_is_no_question() -> None:
    assert list(questions("import platform, os\nprint(platform.system())\nfork = hasattr(os, 'fork')")) == []


def test_no_module_asks_for_the_platforms_name() -> None:
    asked = {
        str(path.relative_to(ROOT)): found
        for path in SOURCES
        if (found := list(questions(Path(path).read_text(encoding="utf-8"))))
    }
    assert asked == {}

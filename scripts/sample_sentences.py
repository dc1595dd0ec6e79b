"""Print random sentences and names of the project, for a reader who marks those that need a second reading.

    python scripts/sample_sentences.py [SEED]

The goal: a reader who knows PyTorch, and not this project, understands 98 % of the sentences at first reading, and
guesses from 57 of 60 names what they refer to.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SENTENCES, NAMES = 50, 60

_CODE_BLOCK = re.compile(r"^```.*?^```$|^    .*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.:?])\s+(?=[A-Z*`])|\n\s*\n|\n(?=[ *|#-])")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def main(seed: int) -> None:
    """Print ``SENTENCES`` sentences of docstrings, messages and pages each, and ``NAMES`` names."""
    trees = [
        (path, ast.parse(path.read_text(encoding="utf-8")))
        for package in ("chirp_migrate", "chirpid_patch")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    docstrings = (text for _, tree in trees for text in _docstrings(tree))
    _, listed = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8").split("## CHP001")
    messages = re.findall(r"^\* \*\*\w+\*\*: (.*)$", listed, re.MULTILINE)
    pages = sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "messages.md")
    texts = (_CODE_BLOCK.sub("", path.read_text(encoding="utf-8")) for path in (ROOT / "README.md", *pages))
    names = (f"{path.relative_to(ROOT)}: {name}" for path, tree in trees for name in _names(tree))
    generator = random.Random(seed)
    for title, found, count in (
        ("Docstrings", _sentences(docstrings), SENTENCES),
        ("Messages", messages, SENTENCES),
        ("Pages", _sentences(texts), SENTENCES),
        ("Names", names, NAMES),
    ):
        print(f"\n{title}\n")
        for number, line in enumerate(generator.sample(sorted(set(found)), count), start=1):
            print(f"{number:2}. {line}")


def _sentences(texts: Iterable[str]) -> Iterator[str]:
    """Yield sentences of four words or more, on one line each."""
    for text in texts:
        lines = (" ".join(part.split()) for part in _SENTENCE_END.split(text))
        yield from (line for line in lines if len(re.findall(r"[a-z]{2,}", line)) > 3)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)):
            yield ast.get_docstring(node) or ""


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield functions with their parameters, and classes, without special methods."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield f"class {node.name}"
        elif isinstance(node, _FUNCTIONS) and not node.name.startswith("__"):
            yield f"{node.name}({', '.join(one.arg for one in node.args.args)})"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

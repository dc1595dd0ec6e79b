"""Print random texts and names of the project, for a reader who marks those that need a second reading.

    python qa/sample_texts.py --seed 7 --count 50

The goal: a reader who knows PyTorch, and not this project, understands 98 % of the texts at first reading, and guesses
from 57 of 60 names what they refer to. Below a sentence of a docstring or a page stands the sentence before it, because
readers meet them in that order.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (ROOT / "chirp_migrate", ROOT / "chirpid_patch")
#: Excluded folders: files that `apply --scaffold` copies into projects, and copies of the sources made by a build.
EXCLUDED = (ROOT / "chirp_migrate/additions/scaffold/templates", ROOT / "chirpid_patch/build")

_CODE_BLOCK = re.compile(r"^ *```.*?^ *```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_INDENTED_CODE = re.compile(r"\n\n(?: {4}.*\n?)+")
_SENTENCE_END = re.compile(r"(?<=[.:?])\s+(?=[A-Z*`])|\n\s*\n|\n(?= *[*|#-]| {0,4}[\w*]+(?: \(.+\))?: )")
_WORD = re.compile(r"(?<![\w{])[A-Za-z][a-z]+(?![\w}])")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> None:
    """Print numbered samples of docstrings, messages, pages and names."""
    parser = argparse.ArgumentParser(description="Print random texts and names of the project.")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random generator (default: 0)")
    parser.add_argument("--count", type=int, default=50, help="texts of each kind (default: 50)")
    options = parser.parse_args()
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in modules()}
    generator = random.Random(options.seed)
    for title, found in (
        ("Docstrings", sentences(text for tree in trees.values() for text in docstrings(tree))),
        ("Messages", (text for tree in trees.values() for _, text in messages(tree) if _is_prose(text))),
        ("Pages", sentences(_CODE_BLOCK.sub("", path.read_text(encoding="utf-8")) for path in pages())),
        ("Names", (f"{path.relative_to(ROOT)}: {name}" for path, tree in trees.items() for name in names(tree))),
    ):
        print(f"\n{title}\n")
        for number, text in enumerate(generator.sample(sorted(set(found)), options.count), start=1):
            print(f"{number:3}. {text}")


def modules() -> list[Path]:
    """Return the modules of both packages."""
    found = (path for package in PACKAGES for path in package.rglob("*.py"))
    return sorted(path for path in found if not any(folder in path.parents for folder in EXCLUDED))


def pages() -> list[Path]:
    """Return the README and all pages in docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module without their code."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)):
            yield _INDENTED_CODE.sub("", ast.get_docstring(node) or "")


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings that contain a blank, except docstrings; placeholders are in braces."""
    skipped = {child for node in ast.walk(tree) for child in _parts_of_text(node)}
    for node in ast.walk(tree):
        if node not in skipped and (text := _text(node)) and " " in text.strip():
            yield node.lineno, text  # type: ignore[attr-defined]  # only expressions have a text


def names(tree: ast.Module) -> Iterator[str]:
    """Yield the public classes and functions of a module; functions have their parameters."""
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)) and not node.name.startswith("_"):
            yield f"class {node.name}" if isinstance(node, ast.ClassDef) else f"{node.name}({_parameters(node.args)})"


def sentences(texts: Iterable[str]) -> Iterator[str]:
    """Yield sentences of four words or more, on one line each, followed by a line with the sentence before it."""
    for text in texts:
        lines = [" ".join(part.split()) for part in _SENTENCE_END.split(text)]
        for before, line in zip(["", *lines], lines, strict=False):
            if _is_prose(line):
                yield f"{line}\n     (after: {before})" if before else line


def _is_prose(text: str) -> bool:
    return len(_WORD.findall(text)) > 3


def _parameters(arguments: ast.arguments) -> str:
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return ", ".join(argument.arg for argument in named)


def _parts_of_text(node: ast.AST) -> Iterator[ast.AST]:
    """Yield child nodes that are no messages themselves: docstrings, and parts of longer strings."""
    if isinstance(node, ast.Expr):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield from node.values
    elif isinstance(node, ast.BinOp) and _text(node):
        yield from (node.left, node.right)


def _text(node: ast.AST) -> str:
    """Return the text of a string expression with its placeholders; an empty string for other expressions."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _text(left) and _text(right):
            return _text(left) + _text(right)
    return ""


if __name__ == "__main__":
    main()

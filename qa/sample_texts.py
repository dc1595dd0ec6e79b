"""Print random texts and names of the project. A reader marks every text that needs a second reading.

    python qa/sample_texts.py --seed 7 --count 50

The goal is that a reader who knows PyTorch but not this project understands 98 % of the texts at first reading, and
guesses the meaning of 57 of 60 names. The line below a sentence of a docstring or a page is the context that readers of
the code or the page see: the class, function or heading, and the sentences above it.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (ROOT / "chirp_migrate", ROOT / "chirpid_patch")
#: Excluded folders: the files that `apply --scaffold` copies into projects, and the copies of sources from a build.
EXCLUDED = (ROOT / "chirp_migrate/additions/scaffold/templates", ROOT / "chirpid_patch/build")

_CODE_BLOCK = re.compile(r"^ *```.*?^ *```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_INDENTED_CODE = re.compile(r"\n\n(?: {4}.*\n?)+")
_SENTENCE_END = re.compile(r"(?<=[.:?])\s+(?=[A-Z*`])|\n\s*\n|\n(?= *[*|#-]| {0,4}[\w*]+(?: \(.+\))?: )")
_HEADING = re.compile(r"^(#+ .*)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
#: Largest number of characters of the sentences above a sentence.
_CONTEXT = 600
_WORD = re.compile(r"(?<![\w{])[A-Za-z][a-z]+(?![\w}])")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> None:
    """Print numbered random samples of docstrings, messages, pages and names."""
    parser = argparse.ArgumentParser(description="Print random texts and names of the project.")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random generator (default: 0)")
    parser.add_argument("--count", type=int, default=50, help="number of texts of each kind (default: 50)")
    options = parser.parse_args()
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in modules()}
    generator = random.Random(options.seed)
    for title, found in (
        ("Docstrings", (text for path, tree in trees.items() for text in docstrings(path, tree))),
        ("Messages", (text for tree in trees.values() for _, text in messages(tree) if _is_prose(text))),
        ("Pages", (text for path in pages() for text in sections(path))),
        ("Names", (f"{path.relative_to(ROOT)}: {name}" for path, tree in trees.items() for name in names(tree))),
    ):
        print(f"\n{title}\n")
        for number, text in enumerate(generator.sample(sorted(set(found)), options.count), start=1):
            print(f"{number:3}. {text}")


def modules() -> list[Path]:
    """Return the paths of all modules in both packages."""
    found = (path for package in PACKAGES for path in package.rglob("*.py"))
    return sorted(path for path in found if not any(folder in path.parents for folder in EXCLUDED))


def pages() -> list[Path]:
    """Return the paths of the README and of all pages in docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def docstrings(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the sentences of all docstrings in a module. Each has the name of its class, function or module."""
    for node, owner in _definitions(tree):
        text = _INDENTED_CODE.sub("", ast.get_docstring(node) or "")
        yield from sentences(
            text, path.name if isinstance(node, ast.Module) else f"{path.name}: {owner}{_heading(node)}"
        )


def _definitions(tree: ast.Module) -> Iterator[tuple[ast.Module | ast.ClassDef | _Function, str]]:
    """Yield a module, its classes and its functions, each with the names of the classes around it."""
    pending: list[tuple[ast.AST, str]] = [(tree, "")]
    for node, owner in pending:
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)):
            yield node, owner
            owner += f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        pending += [(child, owner) for child in ast.iter_child_nodes(node)]


def sections(path: Path) -> Iterator[str]:
    """Yield the sentences of a page. Each sentence has the heading of its section."""
    heading = path.name
    for part in _HEADING.split(_CODE_BLOCK.sub("", path.read_text(encoding="utf-8"))):
        if part.startswith("#"):
            heading = f"{path.name}: {part.lstrip('# ').strip()}"
        else:
            yield from sentences(part, heading)


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line number and text of all strings with a blank, except docstrings. Braces mark placeholders."""
    skipped = {child for node in ast.walk(tree) for child in _parts_of_text(node)}
    for node in ast.walk(tree):
        if node not in skipped and (text := _text(node)) and " " in text.strip():
            yield node.lineno, text  # type: ignore[attr-defined]  # only expressions have a text


def names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the public classes and functions of a module. A function has the names of its parameters."""
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)) and not node.name.startswith("_"):
            yield _heading(node)


def sentences(text: str, heading: str) -> Iterator[str]:
    """Yield the sentences of four words or more. Each sentence is on one line, and its context is on the next line."""
    above = ""
    for line in (" ".join(part.split()) for part in _SENTENCE_END.split(text)):
        if _is_prose(line):
            yield f"{line}\n     (in {heading}{', after: ' if above else ''}{above})"
        above = f"{above} {line}".strip()
        if len(above) > _CONTEXT:
            above = "… " + above[-_CONTEXT:].partition(" ")[2]


def _is_prose(text: str) -> bool:
    return len(_WORD.findall(_PLACEHOLDER.sub("", text))) > 3


def _heading(node: ast.ClassDef | _Function) -> str:
    return f"class {node.name}" if isinstance(node, ast.ClassDef) else f"{node.name}({_parameters(node.args)})"


def _parameters(arguments: ast.arguments) -> str:
    named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    named += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    named += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join(named)


def _parts_of_text(node: ast.AST) -> Iterator[ast.AST]:
    """Yield child nodes that are not messages on their own: docstrings, and parts of longer strings."""
    if isinstance(node, ast.Expr):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield from node.values
    elif isinstance(node, ast.BinOp) and _text(node):
        yield from (node.left, node.right)


def _text(node: ast.AST) -> str:
    """Return the text of a string expression with its placeholders. Return "" for other expressions."""
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

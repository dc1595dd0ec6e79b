"""Read the programs that a rule must not rewrite, from ``fixtures/rules/CHPnnn/requires.toml``.

Each of these files has a list of ``programs``. A program has three fields:

* ``text``: the source code, with a line ``{case}`` where the cases differ (default: only this line).
* ``rewritten``: the code for the line ``{case}`` with which the rule rewrites the program (default: no code).
* ``cases``: a table from NAME or NAME.VARIANT to a change. NAME is a condition in the docstring of the rule's class.
  The changed program violates only this condition, so the rule must not rewrite it.

A change is a string or a table. A string is the code for the line ``{case}``. In a table, each key is a text that
occurs exactly once in the program, and its value replaces this text. There are two special keys. The value of the key
``{case}`` is the code for the line ``{case}``. A key that ends in ``.py`` is the path of a module that is added to the
project, and its value is the code of this module. An empty table changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

from chirp_migrate.source.toml import parse_toml

RULES = Path(__file__).resolve().parents[1] / "fixtures" / "rules"
#: The path of each program in the project of the rule. The other files of this project are in the rule's folder.
PROGRAM = "rule/program.py"

_LINE = re.compile(r"^( *)\{case\}\n", re.MULTILINE)


@cache
def cases(code: str, rules: Path = RULES) -> dict[str, dict[str, str]]:
    """Return the programs that the rule must not rewrite.

    The result is a dictionary: name of a case → dictionary, path of a module → source code of this module.

    Raises:
        ValueError: the file does not have the format in the docstring of this module. The message names the file and
            the case.
    """
    found: dict[str, dict[str, str]] = {}
    for file, program in _programs(code, rules):
        for name, change in program["cases"].items():
            if name in found:
                raise ValueError(f"{file}: two programs have a case with the name {name}")
            found[name] = _changed(f"{file}: {name}", program, change)
    return dict(sorted(found.items()))


def rewritten_programs(code: str, rules: Path = RULES) -> Iterator[str]:
    """Yield the programs that the rule must rewrite: each program without a change, unless a case has an empty table.

    Raises:
        ValueError: the file does not have the format in the docstring of this module.
    """
    for file, program in _programs(code, rules):
        if "text" in program and {} not in program["cases"].values():
            yield _changed(str(file), program, {})[PROGRAM]


def _programs(code: str, rules: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    file = rules / code / "requires.toml"
    if not file.exists():
        return
    try:
        content = parse_toml(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    for program in content["programs"]:
        if not {"cases"} <= program.keys() <= {"text", "rewritten", "cases"}:
            raise ValueError(
                f"{file}: a program must have `cases`, and may have `text` and `rewritten`, but has {sorted(program)}"
            )
        yield file, program


def _changed(where: str, program: dict[str, Any], change: str | dict[str, str]) -> dict[str, str]:
    changes = {"{case}": change} if isinstance(change, str) else change
    text = _with_code(where, program.get("text", "{case}\n"), changes.get("{case}", program.get("rewritten")))
    modules = {}
    for old, new in changes.items():
        if old.endswith(".py"):
            modules[f"rule/{old}"] = f"{new}\n"
        elif old != "{case}":
            if (times := text.count(old)) != 1:
                raise ValueError(f"{where}: the text {old!r} occurs {times} times in the program, not once")
            text = text.replace(old, new)
    return {PROGRAM: text, **modules}


def _with_code(where: str, text: str, code: str | None) -> str:
    """Replace the line ``{case}`` of a program by ``code``, indented like this line. None removes the line."""
    if code is not None and len(_LINE.findall(text)) != 1:
        raise ValueError(f"{where}: the program must have exactly one line {{case}}")
    return _LINE.sub(lambda line: "" if code is None else f"{indent(code, line[1])}\n", text)

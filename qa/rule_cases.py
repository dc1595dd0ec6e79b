"""Read the programs that a rule does not rewrite: ``fixtures/rules/CHPnnn/requires.toml``.

The file has a list of ``programs``, and each of them has:

* ``text``: the program, with a line ``{case}`` where its cases differ (default: that line alone);
* ``rewritten``: the code for that line with which the rule rewrites the program (default: no code);
* ``cases``: NAME or NAME.VARIANT, and the change. NAME is a condition in the docstring of the rule's class. The changed
  program violates that condition only.

A change is a string or a table. A string is the code for the line ``{case}``. Each key of a table is a text that occurs
once in the program, and its value replaces that text. Two kinds of keys differ: the value of ``{case}`` is the code for
that line, and a key that ends in ``.py`` adds a module to the project. An empty table is the program itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RULES = Path(__file__).resolve().parents[1] / "fixtures" / "rules"
#: The path of each program, in a project whose other files are those of the rule's folder.
PROGRAM = "rule/program.py"

_LINE = re.compile(r"^( *)\{case\}\n", re.MULTILINE)


@cache
def cases(code: str, rules: Path = RULES) -> dict[str, dict[str, str]]:
    """Return the programs that the rule does not rewrite, by the name of the case: the texts of their modules by path.

    Raises:
        ValueError: the file is not as described above; the message has the file and the case.
    """
    found: dict[str, dict[str, str]] = {}
    for file, program in _programs(code, rules):
        for name, change in program["cases"].items():
            if name in found:
                raise ValueError(f"{file}: {name}: two programs have a case of this name")
            found[name] = _changed(f"{file}: {name}", program, change)
    return dict(sorted(found.items()))


def rewritten_programs(code: str, rules: Path = RULES) -> Iterator[str]:
    """Yield each program without a case, which the rule rewrites, unless this program is a case itself.

    Raises:
        ValueError: the file is not as described above.
    """
    for file, program in _programs(code, rules):
        if "text" in program and {} not in program["cases"].values():
            yield _changed(str(file), program, {})[PROGRAM]


def _programs(code: str, rules: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    file = rules / code / "requires.toml"
    if not file.exists():
        return
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from error
    for program in content["programs"]:
        if not {"cases"} <= program.keys() <= {"text", "rewritten", "cases"}:
            raise ValueError(f"{file}: a program has `cases`, and may have `text` and `rewritten`: {sorted(program)}")
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
                raise ValueError(f"{where}: the program has this text {times} times, not once: {old!r}")
            text = text.replace(old, new)
    return {PROGRAM: text, **modules}


def _with_code(where: str, text: str, code: str | None) -> str:
    """Return the text with code for its line ``{case}``, indented like that line; without the line if there is none."""
    if code is not None and len(_LINE.findall(text)) != 1:
        raise ValueError(f"{where}: the program needs one line {{case}}")
    return _LINE.sub(lambda line: "" if code is None else f"{indent(code, line[1])}\n", text)

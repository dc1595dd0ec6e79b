"""Writes docs/rules.md from the rules themselves, and docs/pickling.md: `python docs/make_rules.py`.

It asks what a user can ask, `chirp-migrate rules --json -` and `chirp-migrate explain CODE --json -`: a new rule with
its pair under `fixtures/rules` is in the reference without a change here.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chirp_migrate.cli import main as command_line

TARGET = Path(__file__).resolve().parent / "rules.md"
PICKLING = TARGET.with_name("pickling.md")
MEASURED = TARGET.parents[1] / "benchmarks" / "results" / "pickling.json"

_HEAD = """\
# Rules

<!-- Written by `python docs/make_rules.py` from the rules and their examples: change those, not this page. -->

A rule looks for one habit of training code. `chirp-migrate rules` lists them, `chirp-migrate explain CHP001` shows one
in a terminal. The examples below are the test cases of the rules.

* **safe**: a program does the same as before: values to the bit, dtypes, layouts, order, errors and where they are
  raised, what is printed, random states. Batches of augmented samples have the same distribution instead. Applied by
  default. [differences.md](differences.md) lists the differences that a program can still see.
* **behaviour-changing**: what training learns differs, so the rule only proposes; `apply --unsafe` applies it.
* **advice**: seen and explained, never rewritten. The example shows what a person makes of it.

What CHP006, CHP007, CHP012 and CHP018 report of objects that cannot be pickled for workers is compared with `pickle`:
[pickling.md](pickling.md) has the table.

A comment `# chirp: ignore[CHP001]` at the end of a line leaves that line alone, `--ignore CHP001` leaves out the rule.
All ways to choose rules and places: [settings.md](settings.md).
"""


_PICKLING = """\
# What cannot be pickled for workers

<!-- Written by `python docs/make_rules.py` from what `make bench-pickling` measured. -->

Worker processes that are not forked get the dataset, the collate function and `worker_init_fn` pickled. CHP006,
CHP007, CHP012 and CHP018 report the objects in them that have no pickled form: the tool follows what each object holds
through constructors, containers, helper functions and files. It reports nothing for loaders that can have no workers. A
lambda or local function that workers do not get may still be rewritten: the rewrite changes nothing else.

The benchmark makes a program for every kind of object in every place, with names and structure by a seed, and pickles
what the loader sends its workers in another process. h5py, lmdb, netCDF4 and torchvision are stand-ins."""

_CELLS = """\
In each cell: programs in which a rule names the object / programs whose objects cannot be pickled. `+n` counts reports
in programs whose objects can. In a place of which all cells begin with 0, nothing reaches the workers.

Made by `make bench-pickling`; each kind and place alone: [results](../benchmarks/results/pickling.md)."""


def reference() -> str:
    """The whole page."""
    rules = [_asked("explain", one["code"]) for one in _asked("rules")["rules"]]
    rows = [f"| [{rule['code']}](#{_anchor(rule)}) | {rule['safety']} | {_cell(rule['summary'])} |" for rule in rules]
    table = "\n".join(["| rule | safety | what it does |", "|---|---|---|", *rows])
    return "\n".join([_HEAD, table, *(f"\n{section(rule)}" for rule in rules)]) + "\n"


def pickling() -> str:
    """The page on what cannot be pickled for workers, from what the benchmark measured."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    goals = [f"* {goal['what']}: {goal['measured']}" for goal in measured["goals"]]
    return "\n\n".join([_PICKLING, "\n".join(goals), _CELLS, "\n".join(measured["matrix"])]) + "\n"


def section(rule: dict[str, Any]) -> str:
    """What the page says of one rule, given as the JSON of ``explain``."""
    advice = rule["safety"] == "advice"
    parts = [
        f"## {rule['code']} {rule['name']}",
        f"**{rule['safety'].capitalize()}.** {_prose(rule['summary'])}",
        f"Why: {_prose(rule['reason'])}",
    ]
    parts += [rule["requires"]] if rule["requires"] else []
    if rule["reports"]:
        parts.append("What it says:" if advice else "What it reports and leaves alone:")
        parts.append("\n".join(f"* {_code(one['source'])}: {_prose(one['message'])}" for one in rule["reports"]))
    diff = "\n".join(_diff(rule["before"], rule["after"]))
    if diff:
        parts += ["What a person makes of it:"] if advice else []
        parts.append(f"```diff\n{diff}\n```")
    return "\n\n".join(parts)


def _asked(*arguments: str) -> Any:
    """What a command writes as JSON."""
    said = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(said, encoding="utf-8", write_through=True)):
        command_line.main(args=[*arguments, "--json", "-"], standalone_mode=False)
        return json.loads(said.getvalue())


def _diff(before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    for number, line in enumerate(lines):
        if number >= 2:  # after the two lines that name the files
            yield line.rstrip()


def _anchor(rule: dict[str, Any]) -> str:
    """The heading of the rule's section as a link names it."""
    return f"{rule['code']} {rule['name']}".lower().replace(" ", "-")


def _prose(text: str) -> str:
    """Text in which only what stands in backticks is markup, and pages of this folder are links."""
    pieces = re.split(r"(`[^`]*`)", text)
    plain = "".join(one if one.startswith("`") else re.sub(r"([<*_\[\]\\])", r"\\\1", one) for one in pieces)
    return re.sub(r"\bdocs/([\w-]+\.md)\b", r"[\1](\1)", plain)


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|")


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


if __name__ == "__main__":
    for path, page in ((TARGET, reference()), (PICKLING, pickling())):
        path.write_text(page, encoding="utf-8")
        print(f"written: {path}")

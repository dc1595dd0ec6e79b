"""Write docs/rules.md, and a page for each rule in docs/rules/.

    python docs/make_rules.py

The pages are made from the output of `chirp-migrate rules --json -` and `chirp-migrate explain CODE --json -`. So a new
rule with an example in `fixtures/rules` gets a page without a change here.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chirp_migrate.cli import main as command_line

DOCS = Path(__file__).resolve().parent

_GENERATED = (
    "<!-- Written by `python docs/make_rules.py` from the rules and their examples: change those, not this page. -->"
)
_HEAD = f"""\
# Rules

{_GENERATED}

After reading this page you know what each rule looks for and how safe it is.

A rule looks for one habit of training code. `chirp-migrate rules` lists all rules, and `chirp-migrate explain CHP001`
describes one rule in a terminal. The page of a rule explains why the habit is slow or unsafe. The page also has the
conditions of the rule, and an example before and after the rewrite. The tests of the rules run these examples.

* **safe**: the rewritten program has the same values to the bit, dtypes, layouts, order, output and random states. The
  rewritten program raises the same errors in the same places. Batches of augmented samples have the same distribution,
  but other values. `apply` applies safe rewrites by default. [differences.md](differences.md) lists the differences
  that a program can still detect.
* **behaviour-changing**: the rewrite changes what training learns. Such a rewrite is called a suggestion. `apply
  --unsafe` applies suggestions.
* **advice**: the rule reports and explains the code, and never rewrites the code. The example on the page of the rule
  shows the code after a manual change.

The rules CHP006, CHP007, CHP012 and CHP018 find objects that cannot be pickled for workers. [pickling.md](pickling.md)
describes how these findings were compared with the results of `pickle`.

A comment `# chirp: ignore[CHP001]` at the end of a line suppresses the rule in this line. `--ignore CHP001` disables
the rule. [settings.md](settings.md) describes all ways to choose rules and files.
"""


_MORE = "See also: [all rules](../rules.md), [every message](../messages.md), [settings](../settings.md)."

_OPENING = (
    "After reading this page you know why this rule exists, when it rewrites code, and how to suppress the rule.",
    "After reading this page you know why this rule exists, how to change the code, and how to suppress the rule.",
)

#: The options for one rule, by its safety.
_OPTIONS = {
    "safe": """\
`apply` applies this rule by default.

| to | write |
|---|---|
| suppress the rule in one line | `# chirp: ignore[{code}]` at the end of the line |
| disable the rule | `chirp-migrate apply --ignore {code}` |
| apply only this rule | `chirp-migrate apply --select {code}` |""",
    "behaviour-changing": """\
The rewrite changes what training learns, so `apply` only suggests the rewrite.

| to | write |
|---|---|
| apply the suggestions of this rule | `chirp-migrate apply --unsafe --select {code}` |
| suppress the suggestion for one line | `# chirp: ignore[{code}]` at the end of the line |
| disable the rule | `chirp-migrate apply --ignore {code}` |""",
    "advice": """\
No command rewrites this code. `chirp-migrate plan -v` lists all findings.

| to | write |
|---|---|
| suppress the advice for one line | `# chirp: ignore[{code}]` at the end of the line |
| disable the rule | `chirp-migrate plan --ignore {code}` |""",
}


def reference() -> dict[str, str]:
    """Return the text of each page, by its path in docs/."""
    rules = [_asked("explain", one["code"]) for one in _asked("rules")["rules"]]
    links = [f"[{rule['code']} {rule['name']}](rules/{rule['code']}.md)" for rule in rules]
    summaries = [_prose(rule["summary"]).replace("|", "\\|") for rule in rules]
    rows = [f"| {link} | {rule['safety']} | {text} |" for link, rule, text in zip(links, rules, summaries, strict=True)]
    table = "\n".join(["| rule | safety | what it does |", "|---|---|---|", *rows])
    return {"rules.md": f"{_HEAD}\n{table}\n", **{f"rules/{rule['code']}.md": page(rule) for rule in rules}}


def page(rule: dict[str, Any]) -> str:
    """Return the page of one rule, given as the JSON of ``explain``."""
    advice = rule["safety"] == "advice"
    parts = [
        f"# {rule['code']} {rule['name']}",
        _GENERATED,
        _OPENING[advice],
        f"**What the rule does ({rule['safety']}).** {_prose(rule['summary'], '../')}",
        "## Why",
        _prose(rule["reason"], "../"),
    ]
    diff = "\n".join(_diff(rule["before"], rule["after"]))
    if diff:
        parts += ["## The code after a manual change" if advice else "## Before and after", f"```diff\n{diff}\n```"]
    if rule["requires"]:
        parts += ["## What the rule requires", rule["requires"]]
    if rule["reports"]:
        reports = (f"* {_code(one['source'])}: {_prose(one['message'], '../')}" for one in rule["reports"])
        parts += ["## What the rule reports" if advice else "## Reported, not rewritten", "\n".join(reports)]
    parts += ["## Options", _OPTIONS[rule["safety"]].format(code=rule["code"]), _MORE]
    return "\n\n".join(parts) + "\n"


def _asked(*arguments: str) -> Any:
    """Run a command with ``--json -``, and return its JSON."""
    said = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(said, encoding="utf-8", write_through=True)):
        command_line.main(args=[*arguments, "--json", "-"], standalone_mode=False)
        return json.loads(said.getvalue())


def _diff(before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    for number, line in enumerate(lines):
        if number >= 2:  # after the two lines that name the files
            yield line.rstrip()


def _prose(text: str, base: str = "") -> str:
    """Return ``text`` in Markdown: escaped outside of backticks, and with links to pages of docs/.

    ``base`` is the path from the page to docs/.
    """
    pieces = re.split(r"(`[^`]*`)", text)
    plain = "".join(one if one.startswith("`") else re.sub(r"([<*_\[\]\\])", r"\\\1", one) for one in pieces)
    return re.sub(r"\bdocs/([\w-]+\.md)\b", rf"[\1]({base}\1)", plain)


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


if __name__ == "__main__":
    shutil.rmtree(DOCS / "rules", ignore_errors=True)
    (DOCS / "rules").mkdir()
    for name, text in reference().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"written: {DOCS / name}")

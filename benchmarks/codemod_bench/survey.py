"""Migrate copies of packages with the installed command line, and check the result."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import account, census, checks
from .packages import Package, fetch, unpack

_APPLY = [
    sys.executable,
    "-m",
    "chirp_migrate",
    "apply",
    "--no-scaffold",
    "--no-notebooks",
    "--tests",
    "--all-loaders",
    "--allow-dirty",
    "--ignore-pins",
]


@dataclass
class Surveyed:
    """The result for one package.

    Attributes:
        name: the package and its version.
        files: Python files in its source distribution.
        rewritten: number of rewritten Python files.
        seconds: seconds of the first run, which changes files.
        account: result for every site that the census found.
        rules: findings by rule and status.
        checks: problems of the rewritten files.
        second_run: files that a second run changed again.
        not_rolled_back: files that differ from the original after a rollback.
        failures: files that the tool could not process, with the reason.
    """

    name: str
    files: int
    rewritten: int
    seconds: float
    account: account.Account
    rules: dict[str, dict[str, int]]
    checks: checks.Findings = field(default_factory=checks.Findings)
    second_run: list[str] = field(default_factory=list)
    not_rolled_back: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def problems(self) -> dict[str, list[str]]:
        """Return all problems by kind; kinds without problems are omitted."""
        found = {
            "does not compile": self.checks.uncompilable,
            "undefined name": self.checks.undefined,
            "definition hidden by another": self.checks.redefined,
            "changed without a finding": self.checks.unexplained,
            "comment lost": self.checks.lost_comments,
            "changed by a second run": self.second_run,
            "not restored by rollback": self.not_rolled_back,
            "site without a finding": self.account.unaccounted,
            "finding without a counted site": self.account.unknown,
            "counts differ": self.account.disagreements,
            "internal error": [one for one in self.failures if "internal error" in one],
        }
        return {kind: places for kind, places in found.items() if places}


def survey(package: Package, cache: Path, scratch: Path, keep: bool = False) -> Surveyed:
    """Migrate a copy of ``package`` below ``scratch``, check it, and roll it back.

    If ``keep`` is set, the copy is migrated once more at the end.

    Raises:
        Unavailable: the package cannot be downloaded.
        RuntimeError: the tool ended with an error.
    """
    work = unpack(fetch(package, cache), scratch / package.name)
    original = checks.snapshot(work)
    before = census.count(work)
    begun = time.monotonic()
    plan = migrate(work, scratch / f"{package.name}.json")
    seconds = time.monotonic() - begun
    migrated = checks.snapshot(work)
    after = census.count(work)
    settled = account.account_for_sites(before, after, plan["findings"], plan.get("ledger"))
    rules: dict[str, Counter[str]] = {}
    for finding in plan["findings"]:
        rules.setdefault(finding["rule"], Counter())[finding["status"]] += 1
    rewritten = {one["path"] for one in plan["files"] if one["note"] == "rewrite"}
    result = Surveyed(
        name=f"{package.name} {package.version}",
        files=sum(path.endswith(".py") for path in original),
        rewritten=len(rewritten),
        seconds=seconds,
        account=settled,
        rules={rule: dict(statuses) for rule, statuses in sorted(rules.items())},
        failures=[f"{one['path']}: {one['reason']}" for one in plan["skipped"]],
    )
    for path in checks.changed(original, migrated):
        if path.endswith(".py"):
            lines = {one["line"] for one in plan["findings"] if one["path"] == path and one["status"] == "rewrite"}
            result.checks.add(checks.check_file(path, original.get(path, b""), migrated.get(path, b""), lines))
    migrate(work, scratch / f"{package.name}.second.json")
    result.second_run = checks.changed(migrated, checks.snapshot(work))
    if rewritten and not result.second_run:
        result.not_rolled_back = _rolled_back(work, original)
    if keep:
        migrate(work, scratch / f"{package.name}.json")  # migrate again, to keep the result
    else:
        shutil.rmtree(scratch / package.name)
    return result


def migrate(tree: Path, target: Path) -> Any:
    """Migrate ``tree`` with its tests; return the plan, and write it to ``target``.

    Raises:
        RuntimeError: the tool ended with an error.
    """
    ended = subprocess.run(
        [*_APPLY, "--json", str(target), str(tree)], capture_output=True, text=True, check=False, cwd=tree
    )
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"apply ended with {ended.returncode}: {ended.stderr.strip()[-500:]}")
    return json.loads(target.read_text(encoding="utf-8"))


def _rolled_back(tree: Path, original: dict[str, bytes]) -> list[str]:
    """Roll back the migration, and return the files that differ from the original."""
    command = [sys.executable, "-m", "chirp_migrate", "rollback", str(tree)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree)
    if ended.returncode != 0:
        return [f"rollback ended with {ended.returncode}: {ended.stderr.strip()[-300:]}"]
    return checks.changed(original, checks.snapshot(tree))

"""Show which files of a folder LibCST must parse, and for which rules: `first_stage.py FOLDER`.

A fast first stage without LibCST decides which rules may find something in a file. This script also runs every rule on
every file, to check the first stage. For each rule, the script prints four numbers of files: files that pass the first
stage, files that pass and have findings, files that pass only for this rule and have no findings, and files with
findings that do not pass. The exit code is 1 if a file with findings does not pass.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from chirp_migrate.engine.rewrite_file import applicable_rules
from chirp_migrate.rules import all_rules
from chirp_migrate.source.files import read_file
from chirp_migrate.source.text import SourceFile, UnreadableSource
from chirp_migrate.syntax.module import UnparsableModule
from chirp_migrate.syntax.project import Project


def main() -> None:
    """Print the table for one tree."""
    root = Path(sys.argv[1]).resolve()
    texts: dict[str, str] = {}
    for file in sorted(root.rglob("*.py")):
        try:
            texts[file.relative_to(root).as_posix()] = SourceFile.from_bytes(read_file(file)).text
        except UnreadableSource as error:
            print(f"{file}: {error}", file=sys.stderr)
    project, rules = Project(texts), all_rules()
    passing: Counter[str] = Counter()
    finding: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    files_read = files_with_findings = 0
    for path, text in texts.items():
        try:
            module = project.module(path, in_work=True)
        except UnparsableModule as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        passed = {rule.code for rule in applicable_rules(rules, path, text, project)}
        found = {rule.code for rule in rules if any(True for _ in rule.check(module, project))}
        files_read, files_with_findings = files_read + bool(passed), files_with_findings + bool(found)
        passing.update(passed)
        finding.update(passed & found)
        lost.update(found - passed)
        if len(passed) == 1 and not found:
            idle.update(passed)
        for code in sorted(found - passed):
            print(f"{path}: {code} has findings, but the file does not pass the first stage", file=sys.stderr)
    print(f"{len(texts)} files; LibCST parses {files_read}, {files_with_findings} have findings")
    print("| rule | files that pass | pass, findings | pass only for this rule, no findings | findings, no pass |")
    print("| --- | --: | --: | --: | --: |")
    for code in sorted({*passing, *lost}):
        print(f"| {code} | {passing[code]} | {finding[code]} | {idle[code]} | {lost[code]} |")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()

"""Which files of a tree LibCST reads, and for which rules: `first_stage.py FOLDER`.

For every rule: how many files pass for it, for how many of these it has something to say, and how many pass for it
alone and have no finding at all.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.rewrite_file import concerned_rules
from chirp_migrate.engine.settings import Settings
from chirp_migrate.rules import all_rules
from chirp_migrate.source.files import read_file
from chirp_migrate.source.text import SourceFile, UnreadableSource
from chirp_migrate.syntax.project import Project


def main() -> None:
    """Print the table of one tree."""
    root = Path(sys.argv[1]).resolve()
    texts: dict[str, str] = {}
    for file in sorted(root.rglob("*.py")):
        try:
            texts[file.relative_to(root).as_posix()] = SourceFile.from_bytes(read_file(file)).text
        except UnreadableSource as error:
            print(f"{file}: {error}", file=sys.stderr)
    found: dict[str, set[str]] = defaultdict(set)
    for finding in plan_tree(root, settings=Settings(tests=True, notebooks=False)).findings:
        found[finding.path].add(finding.rule)
    project = Project(texts)
    passed = {
        path: [one.code for one in concerned_rules(all_rules(), path, text, project)] for path, text in texts.items()
    }
    passing: Counter[str] = Counter(code for codes in passed.values() for code in codes)
    heard: Counter[str] = Counter(code for path, codes in passed.items() for code in codes if code in found[path])
    idle: Counter[str] = Counter(codes[0] for path, codes in passed.items() if len(codes) == 1 and not found[path])
    read = sum(bool(codes) for codes in passed.values())
    print(f"{len(texts)} files; {read} are read by LibCST, {sum(map(bool, found.values()))} have findings")
    print("| rule | files passing | with findings of it | passing for it alone, without findings |")
    print("| --- | --: | --: | --: |")
    for code in sorted(passing):
        print(f"| {code} | {passing[code]} | {heard[code]} | {idle[code]} |")


if __name__ == "__main__":
    main()

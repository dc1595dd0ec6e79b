"""Parse every Python file below a folder with LibCST, and nothing else: `parse_all.py PROCESSES FOLDER`."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import libcst as cst


def parse(path: Path) -> bool:
    """Return whether LibCST can parse the file."""
    try:
        cst.parse_module(path.read_bytes())
    except (cst.ParserSyntaxError, UnicodeDecodeError, RecursionError):
        return False
    return True


def main() -> None:
    """Parse all files, and print how many could be parsed."""
    processes, root = int(sys.argv[1]), Path(sys.argv[2])
    paths = sorted(root.rglob("*.py"))
    if processes == 1:
        read = sum(map(parse, paths))
    else:
        with multiprocessing.Pool(processes) as pool:
            read = sum(pool.imap_unordered(parse, paths, chunksize=4))
    print(f"{read} of {len(paths)} files read")


if __name__ == "__main__":
    main()

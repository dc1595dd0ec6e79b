"""Measure the share of the planning time that LibCST needs for parsing: `parsing_share.py FOLDER` prints JSON.

The times are CPU times of one process, without imports. LibCST may parse a rewritten file more than once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import libcst as cst

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.settings import Settings


def main() -> None:
    """Plan the tree, and add up the calls of the parser."""
    parse, spent = cst.parse_module, []

    def timed(source: str | bytes) -> cst.Module:
        begun = time.process_time()
        try:
            return parse(source)
        finally:
            spent.append(time.process_time() - begun)

    settings = Settings(tests=True, all_loaders=True)
    assert settings.rules  # imported before the clock starts
    cst.parse_module = timed  # type: ignore[assignment]
    begun = time.process_time()
    plan_tree(Path(sys.argv[1]), settings=settings, jobs=1)
    whole = time.process_time() - begun
    print(json.dumps({"texts": len(spent), "parsing": sum(spent), "rest": whole - sum(spent)}))


if __name__ == "__main__":
    main()

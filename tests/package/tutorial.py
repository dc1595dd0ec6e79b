"""The tutorial's commands with an installed program: ``python tests/package/tutorial.py PATH/TO/chirp-migrate``.

On a copy of the fixture backend, in a folder of its own. What ``verify`` needs besides (the backend's own requirements)
an empty environment does not have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "backend"


def follow(program: Path, folder: Path) -> None:
    """Migrate a copy of the fixture backend in ``folder``, and undo it.

    Raises:
        AssertionError: a command ends otherwise than the tutorial says, or leaves other files.
    """
    backend = folder / "backend"
    shutil.copytree(FIXTURE, backend, ignore=shutil.ignore_patterns("__pycache__", ".chirp-migrate"))
    before = _contents(backend)

    def step(*arguments: str, says: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        result = subprocess.run(
            [str(program), *arguments], cwd=folder, env=inherited, capture_output=True, text=True, check=False
        )
        shown = f"$ chirp-migrate {' '.join(arguments)}\n{result.stdout}{result.stderr}"
        assert result.returncode == 0, f"{shown}\nended with exit code {result.returncode}"
        assert says in result.stdout + result.stderr, f"{shown}\ndoes not say {says!r}"
        assert "Traceback" not in result.stderr, shown

    step("--help", says="rollback")
    step("explain", "CHP007", says="--- before.py")
    step("apply", "backend", says="rollback")
    assert _contents(backend).keys() - before.keys(), "`apply` added no files"
    step("check", "backend", says="Clean")
    step("rollback", "backend", says="as it was")
    assert _contents(backend) == before, "`rollback` left other files than there were"
    step("completion", "bash", says="complete")


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as temporary:
        follow(Path(sys.argv[1]).absolute(), Path(temporary))
    print("The tutorial's commands do what it says.")

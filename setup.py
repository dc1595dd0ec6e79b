"""What pyproject.toml cannot express: the wheel contains the examples of the rules, for ``explain``."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithExamples(build_py):
    """Copies ``fixtures/rules`` to ``chirp_migrate/examples``; an editable install reads them where they are."""

    def run(self) -> None:
        """Build the packages, then add the examples."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "chirp_migrate", "examples")
            shutil.rmtree(target, ignore_errors=True)
            for file in Path("fixtures", "rules").glob("*/*.py"):
                copy = target / file.parent.name / file.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)


setup(cmdclass={"build_py": BuildWithExamples})

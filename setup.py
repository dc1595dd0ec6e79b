"""What pyproject.toml cannot say: the examples of the rules, which the tests run, go into the wheel for ``explain``,
and one wheel serves every version of Python."""

from __future__ import annotations

import shutil
import sysconfig
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


# The C module uses the stable interface of 3.10 and later, which free-threaded Python does not have.
_ONE_WHEEL = {} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"bdist_wheel": {"py_limited_api": "cp310"}}

setup(cmdclass={"build_py": BuildWithExamples}, options=_ONE_WHEEL)

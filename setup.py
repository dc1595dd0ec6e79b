"""What pyproject.toml cannot say: the examples of the rules, which the tests run, go into the wheel for ``explain``,
and one wheel serves every version of Python from 3.11 on."""

from __future__ import annotations

import shutil
import sys
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


# The C module uses the stable interface of 3.11 and later, which free-threaded Python does not have.
_IS_STABLE = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
_ONE_WHEEL = {"bdist_wheel": {"py_limited_api": "cp311"}} if _IS_STABLE else {}

setup(cmdclass={"build_py": BuildWithExamples}, options=_ONE_WHEEL)

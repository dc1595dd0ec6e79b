"""Pins that contradict the runtime are refused before anything is written; a copy replaces a dependency."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support import LOADER, ROOT, run, sentence, snapshot, write_files

from chirp_migrate.additions.requirement_pins import NEEDED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_what_the_runtime_needs_is_what_the_distribution_says() -> None:
    project = tomllib.loads((ROOT / "chirpid_patch" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={NEEDED['python']}"
    assert project["dependencies"] == [f"{name}>={NEEDED[name]}" for name in ("torch", "numpy")]


REFUSED = {
    "an exact version": ("requirements.txt", "torch==1.1.0\n", "torch==1.1.0"),
    "a local version": ("requirements.txt", "torch==1.12.1+cu113  # old\n", "torch==1.12.1+cu113"),
    "an upper bound": ("requirements-dev.txt", "numpy >=1.17, <1.24\n", "numpy >=1.17, <1.24"),
    "a compatible release": ("requirements/base.txt", "numpy~=1.23.1\n", "numpy~=1.23.1"),
    "a file of PowerShell": ("requirements.txt", "torch==1.1.0\n".encode("utf-16"), "torch==1.1.0"),
    "hashes": ("requirements.txt", "torch==1.1.0 \\\n    --hash=sha256:00\n", "torch==1.1.0"),
    "a project table": ("pyproject.toml", "[project]\nname = 'a'\ndependencies = ['torch<2']\n", "torch<2"),
    "Python": ("pyproject.toml", "[project]\nrequires-python = '<3.10'\n", "requires-python <3.10"),
    "setup.py's Python": (
        "setup.py",
        "import setuptools\nPYTHON = '<3.9'\nsetuptools.setup(name='a', python_requires=PYTHON)\n",
        "python_requires <3.9",
    ),
    "setup.py's lists": (
        "setup.py",
        "from setuptools import setup\nsetup(name='a', install_requires=['torch>=1.4,<2'], version=read())\n",
        "torch>=1.4,<2",
    ),
    "an extra": ("pyproject.toml", "[project.optional-dependencies]\na = ['numpy==1.19.*']\n", "numpy==1.19.*"),
    "Poetry's caret": ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = '^1.10'\n", 'torch = "^1.10"'),
    "Poetry's tilde": ("pyproject.toml", "[tool.poetry.dependencies]\npython = '~3.9'\n", 'python = "~3.9"'),
    "Poetry's version": (
        "pyproject.toml",
        "[tool.poetry.dependencies]\ntorch = {version = '1.7.1'}\n",
        'torch = "1.7.1"',
    ),
    "an extra of setup.py": (
        "setup.py",
        "D = ['sphinx']\nsetup(name='a', extras_require={'docs': D, 'dev': D + ['x'], 'nn': ['torch<2']})\n",
        "torch<2",
    ),
    "setup.cfg": ("setup.cfg", "[options]\ninstall_requires =\n    torch<2.0\n", "torch<2.0"),
    "setup.cfg's Python": ("setup.cfg", "[options]\npython_requires = ==3.8.*\n", "python_requires ==3.8.*"),
    "conda": ("environment.yml", "name: a\ndependencies:\n  - pytorch=1.7.1=py3.8_0\n", "pytorch=1.7.1=py3.8_0"),
    "conda's prefix": ("environment.yml", "dependencies:\n- python=3.8\n- pip\n", "python=3.8"),
    "conda's pip": ("environment.yml", "dependencies:\n  - pip:\n    - torch==1.9.0\n", "torch==1.9.0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_pin_that_excludes_the_runtime_is_named(tmp_path: Path, name: str) -> None:
    path, content, pin = REFUSED[name]
    root = write_files(tmp_path, {"train.py": LOADER, path: content})
    before = snapshot(root)
    done = run("apply", root)
    assert done.exit_code == 3 and snapshot(root) == before
    assert re.search(rf"{re.escape(path)} requires {re.escape(pin)}, but chirpid-patch needs \w+>=\d", sentence(done))
    assert "--ignore-pins" in sentence(done)
    assert run("apply", "--ignore-pins", root).exit_code == 0
    assert "OptimalDataLoaderFactory" in (root / "train.py").read_text()


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (
            "requirements.txt",
            "torch>=1.7\nnumpy\ntorch<3\nnumpy==1.24\ntorch~=2.6\nnumpy!=1.25\ntorch-geometric==1.0\n",
        ),
        (
            "requirements.txt",
            "# torch==1.1.0\n-r other.txt\n-e .\ntorch @ git+https://github.com/pytorch/pytorch\n???\n",
        ),
        ("requirements.txt", "torch==2.2; python_version < '3.12'\ntorch>=2.6; python_version >= '3.12'\n"),
        ("pyproject.toml", "[project]\nname = 'a'\nrequires-python = '>=3.10'\ndependencies = ['torch<=2.6']\n"),
        ("pyproject.toml", "[tool.poetry.dependencies]\npython = '^3.10'\ntorch = '^2.0'\nnumpy = '*'\n"),
        ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = '1.7 || ^2'\n"),
        ("setup.cfg", "[options]\npython_requires = >=3.11\ninstall_requires = torch\n"),
        ("pyproject.toml", "[tool.poetry.dependencies]\npython = '^2.7 || ^3.10'\n"),
        (
            "setup.py",
            "from setuptools import setup\nsetup(python_requires=read(), install_requires=TORCH + ['torch<2'])\n",
        ),
        ("setup.py", "setup(python_requires='>=3.7'\n"),
        ("environment.yml", "dependencies:\n  - python>=3.8\n"),
        ("environment.yml", "channels:\n  - torch=1\ndependencies:\n  - python=3.12\n  - pytorch>=2.6\n  - numpy=1\n"),
    ],
)
def test_other_pins_are_no_obstacle(tmp_path: Path, path: str, content: str) -> None:
    root = write_files(tmp_path, {"train.py": LOADER, path: content})
    assert run("apply", root).exit_code == 0


def test_pins_count_only_if_something_imports_the_runtime(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"train.py": "print()\n", "requirements.txt": "torch==1.1.0\n"})
    assert run("apply", root).exit_code == 0


def test_a_diff_names_what_apply_will_refuse(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"train.py": LOADER, "requirements.txt": "torch==1.1.0\n"})
    shown = run("apply", "--diff", root)
    assert (
        shown.exit_code == 0 and "`apply` will refuse this plan: requirements.txt requires torch==1.1.0" in shown.stderr
    )
    assert "refuse" not in run("apply", "--diff", "--ignore-pins", root).stderr


def test_plans_and_reviews_are_refused_when_they_are_applied(tmp_path: Path) -> None:
    root = write_files(tmp_path / "mine", {"train.py": LOADER, "requirements.txt": "torch==1.1.0\n"})
    plan = tmp_path / "plan.json"
    assert run("plan", root, "-o", plan).exit_code == 0
    assert run("apply", "--plan", plan, root).exit_code == 3
    done = run("review", "--plan", plan, root, answers="y\ny\ny\n")
    assert done.exit_code == 3 and "torch==1.1.0" in done.stderr
    assert run("apply", "--plan", plan, "--ignore-pins", root).exit_code == 0


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("requirements.txt", "torch\nnumpy\n"),
        ("requirements.txt", "torch\r\nnumpy"),
        ("pyproject.toml", '[project]\nname = "a"\nversion = "1"\ndependencies = [\n    "torch",  # all\n]\n'),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch\n"),
        (
            "setup.py",
            "from setuptools import setup\n\nsetup(install_requires=[\n    'torch'  # é\r\n])\n",
        ),
    ],
)
def test_vendoring_takes_the_place_of_a_dependency_that_was_added(tmp_path: Path, path: str, content: str) -> None:
    root = write_files(tmp_path, {"train.py": LOADER, path: content.encode()})
    assert run("apply", root).exit_code == 0
    applied = snapshot(root, journal=False)
    assert "chirpid-patch>=" in (root / path).read_text(encoding="utf-8") and not (root / "chirpid_patch").exists()
    assert run("apply", "--vendor", root).exit_code == 0
    assert (root / "chirpid_patch" / "__init__.py").is_file() and (root / path).read_bytes() == content.encode()
    vendored = snapshot(root, journal=False)
    assert run("apply", "--vendor", root).exit_code == 0 and snapshot(root, journal=False) == vendored
    assert run("rollback", root).exit_code == 0 and snapshot(root, journal=False) == applied


def test_vendoring_by_a_plan_works_as_well(tmp_path: Path) -> None:
    root = write_files(tmp_path / "mine", {"train.py": LOADER, "requirements.txt": "torch\n"})
    assert run("apply", root).exit_code == 0
    assert run("plan", "--vendor", root, "-o", tmp_path / "plan.json").exit_code == 0
    assert run("apply", "--plan", tmp_path / "plan.json", root).exit_code == 0
    assert (root / "chirpid_patch" / "__init__.py").is_file()


def test_a_project_that_imports_no_runtime_gets_no_copy(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"train.py": "print()\n"})
    before = snapshot(root)
    assert run("apply", "--vendor", root).exit_code == 0 and snapshot(root) == before

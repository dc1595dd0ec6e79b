"""What is released: the source archive and the wheel, built as a release is, and installed where nothing else is."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from package_tools import clean_tree, environment, files_in, run
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename
from support import ROOT
from tutorial import follow

pytestmark = pytest.mark.slow

PACKAGES = ("chirp_migrate", "chirpid_patch")
HERE = Path(__file__).parent


class Built(NamedTuple):
    tree: Path
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The archive from a clean tree, and the wheel from the archive, as ``python -m build`` makes them."""
    folder = tmp_path_factory.mktemp("release")
    tree = clean_tree(folder / "tree")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", tree, cwd=folder)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return Built(tree, sdist, wheel)


@pytest.fixture(scope="module")
def pure_wheel(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that comes out where there is no C compiler that works."""
    folder = tmp_path_factory.mktemp("pure")
    with tarfile.open(built.sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", tree, cwd=folder, CC="false")
    (wheel,) = (tree / "dist").glob("*.whl")
    return wheel


def in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def compiled(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("chirpid_patch/_native.") and not name.endswith(".c")}


def metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name)


def test_the_source_archive_is_the_repository(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}

    assert files_in(built.tree) - names == set()
    added = {name for name in names - files_in(built.tree) if ".egg-info/" not in name}
    assert added == {"PKG-INFO", "setup.cfg"}


def test_the_wheel_has_the_packages_and_nothing_else(built: Built) -> None:
    names = in_wheel(built.wheel)
    installed = {name for name in names if ".dist-info/" not in name} - compiled(names)
    source = {name for name in files_in(built.tree) if name.split("/")[0] in PACKAGES and not name.endswith(".c")}
    pairs = files_in(built.tree / "fixtures" / "rules")
    examples = {f"chirp_migrate/examples/{name}" for name in pairs if name.endswith(".py") and name.count("/") == 1}

    assert installed == source | examples
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_c_module_is_compiled_for_every_version(built: Built) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler on this machine")
    _, _, _, tags = parse_wheel_filename(built.wheel.name)

    assert len(compiled(in_wheel(built.wheel))) == 1
    assert {(tag.interpreter, tag.abi) for tag in tags} == {("cp311", "abi3")}


def test_the_metadata_is_valid_and_agrees_with_the_packages(built: Built) -> None:
    found = Metadata.from_email(metadata(built.wheel), validate=True)
    texts = [(ROOT / package / "__init__.py").read_text(encoding="utf-8") for package in PACKAGES]
    versions = [re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE) for text in texts]

    assert versions == [[str(found.version)]] * 2
    assert found.license_expression == "MIT" and found.license_files == ["LICENSE"]
    assert str(found.requires_python) == ">=3.10"
    assert found.description_content_type == "text/markdown"
    assert (found.description or "").strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    runtime = {requirement.name for requirement in found.requires_dist or () if requirement.marker is None}
    assert {"torch", "numpy", "libcst", "click"} <= runtime


def test_the_wheel_runs_the_tutorial_where_only_its_requirements_are(built: Built, tmp_path: Path) -> None:
    """The environment holds the wheel and what it says it requires, and that is linked, not installed."""
    found = Metadata.from_email(metadata(built.wheel), validate=True)
    needed = [one.name for one in found.requires_dist or () if one.marker is None or one.marker.evaluate({"extra": ""})]
    programs = environment(tmp_path / "environment", built.wheel, needed)

    follow(programs / "chirp-migrate", tmp_path)


def test_the_runtime_needs_only_torch_and_numpy_and_no_compiler(built: Built, pure_wheel: Path, tmp_path: Path) -> None:
    """Both wheels, in environments that hold PyTorch and NumPy (linked) and nothing that these do not require."""
    assert not compiled(in_wheel(pure_wheel))
    results = {}
    for name, wheel in (("compiled", built.wheel), ("pure", pure_wheel)):
        programs = environment(tmp_path / name, wheel, ["torch", "numpy"])
        said = run(programs / "python", HERE / "load_with_runtime.py", cwd=tmp_path, OMP_NUM_THREADS="1")
        results[name] = json.loads(said.stdout.splitlines()[-1])

    assert results["pure"]["native"] is False
    assert results["compiled"]["native"] is bool(compiled(in_wheel(built.wheel)))
    assert results["pure"]["batches"] == results["compiled"]["batches"]

"""The two distributions: source archives and wheels, built as a release builds them, in empty environments."""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from package_tools import clean_tree, environment, files_in, run
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from support import ROOT
from tutorial import follow

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
#: Python 3.11 and later have the stable interface that the C module uses; free-threaded Python does not.
HAS_STABLE_INTERFACE = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")


class Built(NamedTuple):
    """A distribution and the clean folder that it was built from."""

    source: Path
    sdist: Path
    wheel: Path


def build(source: Path, folder: Path, *options: str) -> Built:
    """Build the archive from the folder, and the wheel from the archive, as ``python -m build`` does."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, *options, source, cwd=source)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(source, sdist, wheel)


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("tool")
    return build(clean_tree(folder / "tree"), folder / "dist")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built with the options of a release, where this Python has the stable interface that they name."""
    folder = tmp_path_factory.mktemp("runtime")
    source = clean_tree(folder / "tree") / "chirpid_patch"
    settings = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    (stable,) = settings["overrides"]
    options = [f"--config-setting={name}={value}" for name, value in stable["config-settings"].items()]
    return build(source, folder / "dist", *(options if HAS_STABLE_INTERFACE else ()))


@pytest.fixture(scope="module")
def pure_wheel(runtime: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the runtime that is built where no C compiler works."""
    folder = tmp_path_factory.mktemp("pure")
    with tarfile.open(runtime.sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", tree, cwd=folder, CC="false")
    (wheel,) = (tree / "dist").glob("*.whl")
    return wheel


def in_archive(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}


def in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def modules_and_marks(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.endswith((".py", "py.typed"))}


def compiled(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("chirpid_patch/_native.") and not name.endswith(".c")}


def metadata(wheel: Path) -> Metadata:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=True)


def required(wheel: Path, *extras: str) -> list[Requirement]:
    """What a wheel requires on this machine, with these extras."""
    found = metadata(wheel).requires_dist or ()
    return [
        one
        for one in found
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
    ]


def test_the_source_archive_of_the_tool_is_the_repository(tool: Built) -> None:
    names = in_archive(tool.sdist)

    assert files_in(tool.source) - names == set()
    added = {name for name in names - files_in(tool.source) if ".egg-info/" not in name}
    assert added == {"PKG-INFO", "setup.cfg"}


def test_the_source_archive_of_the_runtime_is_its_folder(runtime: Built) -> None:
    names = in_archive(runtime.sdist)
    added = {name for name in names - runtime_files(runtime) if ".egg-info/" not in name}

    assert runtime_files(runtime) - names == set()
    assert added == {"PKG-INFO", "setup.cfg"}


def runtime_files(runtime: Built) -> set[str]:
    return {name for name in files_in(runtime.source) if not name.startswith(("build/", "chirpid_patch.egg-info/"))}


def test_the_wheel_of_the_tool_has_the_tool_and_its_examples(tool: Built) -> None:
    installed = {name for name in in_wheel(tool.wheel) if ".dist-info/" not in name}
    source = {name for name in files_in(tool.source) if name.startswith("chirp_migrate/")}
    pairs = files_in(tool.source / "fixtures" / "rules")
    examples = {f"chirp_migrate/examples/{name}" for name in pairs if name.endswith(".py") and name.count("/") == 1}

    assert tool.wheel.name.endswith("-py3-none-any.whl")
    assert installed == source | examples
    assert "chirp_migrate/py.typed" in installed


def test_the_wheel_of_the_runtime_has_the_runtime_and_nothing_else(runtime: Built, pure_wheel: Path) -> None:
    source = {f"chirpid_patch/{name}" for name in modules_and_marks(runtime_files(runtime))}
    for wheel in (runtime.wheel, pure_wheel):
        names = in_wheel(wheel)
        installed = {name for name in names if ".dist-info/" not in name} - compiled(names)

        assert installed == source | {"chirpid_patch/LICENSE"}
        assert "chirpid_patch/py.typed" in installed


def test_the_c_module_is_compiled_for_every_version(runtime: Built) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler on this machine")
    if not HAS_STABLE_INTERFACE:
        pytest.skip("this Python lacks the stable interface of 3.11")
    _, _, _, tags = parse_wheel_filename(runtime.wheel.name)

    assert len(compiled(in_wheel(runtime.wheel))) == 1
    assert {(tag.interpreter, tag.abi) for tag in tags} == {("cp311", "abi3")}


@pytest.mark.parametrize(("name", "package"), [("tool", "chirp_migrate"), ("runtime", "chirpid_patch")])
def test_the_metadata_is_valid_and_agrees_with_the_package(
    request: pytest.FixtureRequest, name: str, package: str
) -> None:
    built: Built = request.getfixturevalue(name)
    found = metadata(built.wheel)
    text = (ROOT / package / "__init__.py").read_text(encoding="utf-8")
    licence = next(one for one in in_wheel(built.wheel) if one.endswith(".dist-info/licenses/LICENSE"))

    assert re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE) == [str(found.version)]
    assert found.license_expression == "MIT" and found.license_files == ["LICENSE"]
    with zipfile.ZipFile(built.wheel) as archive:
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert str(found.requires_python) == ">=3.10"
    assert found.description_content_type == "text/markdown"
    assert (found.description or "").strip() == (built.source / "README.md").read_text(encoding="utf-8").strip()


def test_both_distributions_have_one_version_and_the_tool_requires_that_of_the_runtime(
    tool: Built, runtime: Built
) -> None:
    (needed,) = (one for one in required(tool.wheel) if one.name == "chirpid-patch")

    assert metadata(tool.wheel).version == metadata(runtime.wheel).version
    assert metadata(runtime.wheel).version in needed.specifier


def test_a_training_installs_torch_and_numpy_alone(runtime: Built) -> None:
    assert {one.name for one in required(runtime.wheel)} == {"torch", "numpy"}
    for extra, name in (("gpu", "nvidia-ml-py"), ("memory", "psutil"), ("notebook", "cloudpickle")):
        assert {one.name for one in required(runtime.wheel, extra)} == {"torch", "numpy", name}


@pytest.mark.exhaustive  # test_commands_shown.py runs the tutorial
def test_the_wheels_run_the_tutorial_where_only_their_requirements_are(
    tool: Built, runtime: Built, tmp_path: Path
) -> None:
    """The environment holds the wheels and what they require, and that is linked, not installed."""
    of_tool = required(tool.wheel)
    (needed,) = (one for one in of_tool if one.name == "chirpid-patch")
    others = [one.name for one in [*of_tool, *required(runtime.wheel, *needed.extras)] if one != needed]
    programs = environment(tmp_path / "environment", [tool.wheel, runtime.wheel], others)

    follow(programs / "chirp-migrate", tmp_path)


def test_the_runtime_works_with_torch_and_numpy_alone_and_without_a_compiler(
    runtime: Built, pure_wheel: Path, tmp_path: Path
) -> None:
    """Both wheels, in environments that hold PyTorch and NumPy (linked) and only what these require."""
    assert not compiled(in_wheel(pure_wheel))
    results = {}
    for name, wheel in (("compiled", runtime.wheel), ("pure", pure_wheel)):
        programs = environment(tmp_path / name, [wheel], ["torch", "numpy"])
        said = run(programs / "python", HERE / "load_with_runtime.py", cwd=tmp_path, OMP_NUM_THREADS="1")
        results[name] = json.loads(said.stdout.splitlines()[-1])

    assert results["pure"]["native"] is False
    assert results["compiled"]["native"] is bool(compiled(in_wheel(runtime.wheel)))
    assert results["pure"]["batches"] == results["compiled"]["batches"]
    assert results["pure"]["tuned"] == results["compiled"]["tuned"] == 4

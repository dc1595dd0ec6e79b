"""Find requirements of a project, such as ``torch<2``, with which the runtime cannot be installed.

The module reads requirements files, ``pyproject.toml`` (PEP 621 and Poetry), ``setup.cfg``, literals in ``setup.py``,
and conda's ``environment.yml``. The runtime needs minimum versions of torch, NumPy and Python. An upper bound of the
project can exclude these versions. A requirement with its bounds is called a pin.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from chirp_migrate.additions.setup_script import dependency_lists, setup_call_arguments
from chirp_migrate.source.files import read_file
from chirp_migrate.source.toml import parse_toml

#: The lowest versions that the runtime supports.
NEEDED = {"torch": Version("2.6"), "numpy": Version("1.24"), "python": Version("3.10")}
_TITLES = {"python": "Python"}
#: Names of PyTorch packages in conda.
_CONDA = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch"}
_FILES = ("requirements*.txt", "*requirements.txt", "requirements/*.txt")
_ENVIRONMENTS = ("environment*.yml", "environment*.yaml", "conda*.yml", "conda*.yaml")
#: Supported versions of Python. Only a requirement that applies to all these versions can contradict the runtime.
_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
_SPACES = re.compile(r"\s+")
_CONDA_SPEC = re.compile(r"(?:[\w./-]+::)?([A-Za-z][\w.-]*)\s*(.*)")


@dataclass(frozen=True)
class PinnedRequirement:
    """A requirement in a file of a project, such as ``torch<2``.

    Attributes:
        name: name of the required package, which is ``torch``, ``numpy`` or ``python``.
        written: the requirement as written in the file, on one line.
        path: the file, relative to the folder that was searched.
        bounds: the bounds for the version of the package, such as ``<2``.
        is_conditional: whether a marker, such as ``python_version < "3.12"``, limits the requirement to some of the
            versions of Python that the runtime supports.
    """

    name: str
    written: str
    path: str
    bounds: SpecifierSet
    is_conditional: bool = False

    @property
    def contradicts(self) -> bool:
        """Return whether the bounds exclude all versions of the package that the runtime supports.

        The result is False for a requirement that applies only to some versions of Python.
        """
        return not self.is_conditional and any(_excludes(bound, NEEDED[self.name]) for bound in self.bounds)


def version_conflicts(migrated_folder: Path, project: Path) -> list[str]:
    """Return a message for each requirement, such as ``torch<2``, with which the runtime cannot be installed.

    Args:
        migrated_folder: the folder whose files import the runtime after the migration.
        project: the folder of the project, which is ``migrated_folder`` or a folder above. The function reads the files
            in both folders, and in all folders between these two folders. The paths in messages are relative to
            ``project``.
    """
    folders = [one for one in (migrated_folder, *migrated_folder.parents) if one.is_relative_to(project)]
    conflicts = (
        f"{(folder / pin.path).relative_to(project).as_posix()} requires {pin.written}, but chirpid-patch needs "
        f"{_TITLES.get(pin.name, pin.name)}>={NEEDED[pin.name]}"
        for folder in reversed(folders)
        for pin in pinned_requirements(folder)
        if pin.contradicts
    )
    return list(dict.fromkeys(conflicts))  # a file may contain several equal pins


def pinned_requirements(root: Path) -> Iterator[PinnedRequirement]:
    """Yield the requirements for torch, NumPy and Python in the files of a folder."""
    for path in requirement_files(root):
        yield from _pins_of_requirements_file(read_requirements_text(path), path.relative_to(root).as_posix())
    for name, read in (
        ("pyproject.toml", _pins_of_pyproject),
        ("setup.cfg", _pins_of_setup_cfg),
        ("setup.py", _pins_of_setup_script),
    ):
        if (root / name).is_file():
            yield from read(read_requirements_text(root / name))
    for path in _matching(root, _ENVIRONMENTS):
        yield from _pins_of_conda_environment(read_requirements_text(path), path.relative_to(root).as_posix())


def requirement_files(root: Path) -> list[Path]:
    """Return the files of a project that have names of requirements files, such as ``requirements-dev.txt``."""
    return _matching(root, _FILES)


def _matching(root: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()})


def read_requirements_text(path: Path) -> str:
    """Return the text of a file in UTF-8 or UTF-16 (which PowerShell writes); "" for an unreadable file."""
    try:
        data = read_file(path)
    except OSError:
        return ""
    return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", errors="replace")


def _excludes(bound: Specifier, least: Version) -> bool:
    """Return whether a version bound, such as ``<2``, excludes the version ``least`` and every later version."""
    written = bound.version.removesuffix(".*")
    try:
        version = Version(written)
    except InvalidVersion:
        return False
    match bound.operator:
        case "==" if bound.version.endswith(".*"):
            return version.release < least.release[: len(version.release)]
        case "~=":
            fixed = version.release[:-1]
            return fixed < least.release[: len(fixed)]
        case "==" | "===" | "<=":
            return Version(version.public) < least
        case "<":
            return version <= least
    return False


def _pin_of_requirement(text: str, path: str) -> Iterator[PinnedRequirement]:
    """Yield the pin in a requirement for pip.

    A requirement whose marker excludes all supported versions of Python is skipped.
    """
    line = _without_comment_and_options(text)
    try:
        found = Requirement(line)
    except InvalidRequirement:
        return
    applies = [
        found.marker is None
        or found.marker.evaluate({"python_version": one, "python_full_version": f"{one}.0", "extra": ""})
        for one in _PYTHONS
    ]
    if any(applies):
        yield from _pin(canonicalize_name(found.name), str(found.specifier), line, path, not all(applies))


def distribution_name(requirement: str) -> str:
    """Return the canonical name of the distribution in a requirement; "" if the text is not a requirement."""
    named = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", _without_comment_and_options(requirement))
    return "" if named is None else canonicalize_name(named[0])


def _without_comment_and_options(requirement: str) -> str:
    """Return a requirement on one line, without comment and options."""
    return _SPACES.sub(" ", re.split(r"\s#|\s--", f" {requirement}")[0]).strip()


def _pin(name: str, bounds: str, written: str, path: str, is_conditional: bool = False) -> Iterator[PinnedRequirement]:
    if name in NEEDED:
        try:
            yield PinnedRequirement(name, written, path, SpecifierSet(bounds), is_conditional)
        except InvalidSpecifier:
            return


def _pins_of_requirements_file(text: str, path: str) -> Iterator[PinnedRequirement]:
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "-")):
            yield from _pin_of_requirement(line, path)


def _pins_of_pyproject(text: str) -> Iterator[PinnedRequirement]:
    path = "pyproject.toml"
    try:
        content = parse_toml(text)
    except ValueError:
        return
    project, poetry = nested_table(content, "project"), nested_table(content, "tool", "poetry")
    requires = project.get("requires-python")
    if isinstance(requires, str):
        yield from _pin("python", requires, f"requires-python {requires}", path)
    for listed in (project.get("dependencies"), *nested_table(project, "optional-dependencies").values()):
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, str):
                yield from _pin_of_requirement(one, path)
    for name, given in nested_table(poetry, "dependencies").items():
        for one in given if isinstance(given, list) else [given]:
            version = one.get("version") if isinstance(one, dict) else one
            is_conditional = isinstance(one, dict) and ("python" in one or "markers" in one)
            if isinstance(version, str) and not is_conditional:
                yield from _pin(canonicalize_name(name), _poetry_bounds(version), f'{name} = "{version}"', path)


def nested_table(content: Any, *keys: str) -> dict[str, Any]:
    """Return the table under a sequence of keys; an empty dictionary if the table does not exist."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def _poetry_bounds(text: str) -> str:
    """Translate version bounds of Poetry, such as ``^1.2``, into pip's syntax; "" for alternatives (``||``)."""
    if "|" in text:
        return ""
    bounds = []
    for part in filter(None, map(str.strip, text.split(","))):
        sign, numbers = re.match(r"(\^|~(?!=)|)\s*v?(.*)", part).groups()  # type: ignore[union-attr]
        parts = numbers.split(".")
        if sign == "^":
            fixed = next((n for n, one in enumerate(parts) if one != "0"), len(parts) - 1) + 1
            bounds += [f">={numbers}", f"=={'.'.join(parts[:fixed])}.*"]
        elif sign == "~":
            bounds += [f">={numbers}", f"=={'.'.join(parts[:2])}.*"]
        elif numbers[:1].isdigit():
            bounds.append(f"=={numbers}")
        elif numbers != "*":
            bounds.append(part)
    return ",".join(bounds)


def _pins_of_setup_cfg(text: str) -> Iterator[PinnedRequirement]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    requires = parser.get("options", "python_requires", fallback="").strip()
    yield from _pin("python", requires, f"python_requires {requires}", "setup.cfg")
    extras = parser.items("options.extras_require") if parser.has_section("options.extras_require") else []
    for listed in (parser.get("options", "install_requires", fallback=""), *(value for _, value in extras)):
        for line in listed.replace(";\n", ";").splitlines():
            yield from _pin_of_requirement(line, "setup.cfg") if line.strip() else ()


def _pins_of_setup_script(text: str) -> Iterator[PinnedRequirement]:
    """Yield the pins that a call of ``setup`` in ``setup.py`` contains as literals, without running the script."""
    requires = setup_call_arguments(text).get("python_requires")
    if isinstance(requires, str):
        yield from _pin("python", requires, f"python_requires {requires}", "setup.py")
    for one in chain.from_iterable(dependency_lists(text)):
        if isinstance(one, str):
            yield from _pin_of_requirement(one, "setup.py")


def _pins_of_conda_environment(text: str, path: str) -> Iterator[PinnedRequirement]:
    """Yield the pins in the ``dependencies`` of a conda environment: requirements for conda, and requirements for pip.

    A line for conda has the form ``- name=version``. Lines for pip are indented further.
    """
    inside, depth = False, -1
    for line in text.splitlines():
        content = re.split(r"\s#", line)[0].rstrip()
        if not content.strip() or content.lstrip().startswith("#"):
            continue
        if not content.startswith((" ", "\t", "-")):
            inside, depth = content.partition(":")[0] == "dependencies", -1
            continue
        item = re.match(r"([ \t]*)-\s+[\"']?(.*?)[\"']?$", content)
        if not inside or item is None:
            continue
        indent = len(item[1])
        depth = indent if depth < 0 else depth
        if indent > depth:
            yield from _pin_of_requirement(item[2], path)
        else:
            yield from _pin_of_conda_specification(item[2], path)


def _pin_of_conda_specification(text: str, path: str) -> Iterator[PinnedRequirement]:
    """Yield the pin in one conda specification, such as ``name=1.2``, ``name=1.2.3=build`` or ``name 1.2.*``."""
    spec = _CONDA_SPEC.fullmatch(text.strip())
    if spec is None or "|" in spec[2]:
        return
    name, rest = canonicalize_name(spec[1]), spec[2].strip()
    exact = re.fullmatch(r"(==?|)\s*(\d[\w.]*?)(\.?\*)?(?:[=\s]\S+)?", rest)
    if exact is not None:
        is_prefix = exact[3] is not None or (exact[1] == "=" and "=" not in rest[1:])
        rest = f"=={exact[2]}{'.*' if is_prefix else ''}"
    yield from _pin(_CONDA.get(name, name), rest.replace(" ", ""), text.strip(), path)

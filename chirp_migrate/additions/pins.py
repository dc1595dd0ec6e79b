"""What a project pins, compared with what the runtime needs: a project with both could not be installed.

It reads requirements files, ``pyproject.toml`` (PEP 621 and Poetry), ``setup.cfg`` and conda's ``environment.yml``.
Only an upper bound can contradict the runtime, which needs versions from a minimum on.
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from chirp_migrate.source.files import read_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["NEEDED", "Pin", "contradictions", "pins_in"]

#: The lowest versions that the runtime works with.
NEEDED = {"torch": Version("2.6"), "numpy": Version("1.24"), "python": Version("3.10")}
_TITLES = {"python": "Python"}
#: What conda calls PyTorch.
_CONDA = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch"}
_FILES = ("requirements*.txt", "*requirements.txt", "requirements/*.txt")
_ENVIRONMENTS = ("environment*.yml", "environment*.yaml", "conda*.yml", "conda*.yaml")
#: Versions of Python for which a requirement with a marker may hold.
_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
_SPACES = re.compile(r"\s+")
_WHEEL = re.compile(r"[^/\s]+\.whl")
_CONDA_SPEC = re.compile(r"(?:[\w./-]+::)?([A-Za-z][\w.-]*)\s*(.*)")


@dataclass(frozen=True)
class Pin:
    """A version that a file asks for.

    Attributes:
        name: ``torch``, ``numpy`` or ``python``.
        written: the pin as the file has it, on one line.
        path: the file, relative to the folder that was asked about.
        bounds: what versions may be installed.
    """

    name: str
    written: str
    path: str
    bounds: SpecifierSet


def contradictions(folder: Path, project: Path) -> list[str]:
    """A sentence part for each pin that excludes every version that the runtime works with.

    Args:
        folder: what is migrated.
        project: the folder that it is in or is, whose files and all between are read; paths are shown from there.
    """
    folders = [one for one in (folder, *folder.parents) if one.is_relative_to(project)]
    found: dict[str, None] = {}
    for one in reversed(folders):
        for pin in pins_in(one):
            if any(_excludes(bound, NEEDED[pin.name]) for bound in pin.bounds):
                place = (one / pin.path).relative_to(project).as_posix()
                needed = f"{_TITLES.get(pin.name, pin.name)}>={NEEDED[pin.name]}"
                found[f"{pin.written} in {place}, chirpid-patch needs {needed}"] = None
    return list(found)


def pins_in(root: Path) -> Iterator[Pin]:
    """What the files in a folder ask for of the packages that the runtime needs."""
    for path in _matching(root, _FILES):
        yield from _of_lines(_text_of(path), path.relative_to(root).as_posix())
    if (root / "pyproject.toml").is_file():
        yield from _of_pyproject(_text_of(root / "pyproject.toml"))
    if (root / "setup.cfg").is_file():
        yield from _of_setup(_text_of(root / "setup.cfg"))
    for path in _matching(root, _ENVIRONMENTS):
        yield from _of_environment(_text_of(path), path.relative_to(root).as_posix())


def _matching(root: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()})


def _text_of(path: Path) -> str:
    """The text of a file; "" of one that cannot be read. PowerShell writes UTF-16."""
    try:
        data = read_file(path)
    except OSError:
        return ""
    return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", errors="replace")


def _excludes(bound: Specifier, least: Version) -> bool:
    """Whether a bound admits no version from ``least`` on."""
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


def _of_requirement(text: str, path: str) -> Iterator[Pin]:
    """The pin of one requirement as pip reads it, if it holds for every version of Python that the runtime has."""
    line = _SPACES.sub(" ", re.split(r"\s#|\s--", f" {text}")[0]).strip()
    wheel = _WHEEL.search(line)
    if wheel is not None:
        try:
            name, version, *_ = parse_wheel_filename(wheel[0].replace("%2B", "+").replace("%2b", "+"))
        except (InvalidWheelFilename, InvalidVersion):
            return
        yield from _pin(name, f"=={version.public}", f"{name}=={version}", path)
        return
    try:
        found = Requirement(line)
    except InvalidRequirement:
        return
    if found.marker is None or all(
        found.marker.evaluate({"python_version": one, "python_full_version": f"{one}.0", "extra": ""})
        for one in _PYTHONS
    ):
        yield from _pin(canonicalize_name(found.name), str(found.specifier), line, path)


def _pin(name: str, bounds: str, written: str, path: str) -> Iterator[Pin]:
    if name in NEEDED:
        try:
            yield Pin(name, written, path, SpecifierSet(bounds))
        except InvalidSpecifier:
            return


def _of_lines(text: str, path: str) -> Iterator[Pin]:
    """Pins of a requirements file."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "-")):
            yield from _of_requirement(line, path)


def _of_pyproject(text: str) -> Iterator[Pin]:
    path = "pyproject.toml"
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    project, poetry = _table(content, "project"), _table(content, "tool", "poetry")
    requires = project.get("requires-python")
    if isinstance(requires, str):
        yield from _pin("python", requires, f"requires-python {requires}", path)
    for listed in (project.get("dependencies"), *_table(project, "optional-dependencies").values()):
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, str):
                yield from _of_requirement(one, path)
    for name, given in _table(poetry, "dependencies").items():
        for one in given if isinstance(given, list) else [given]:
            version = one.get("version") if isinstance(one, dict) else one
            is_conditional = isinstance(one, dict) and ("python" in one or "markers" in one)
            if isinstance(version, str) and not is_conditional:
                written = f'{name} = "{version}"'
                yield from _pin(canonicalize_name(name), _poetry_bounds(version), written, path)


def _table(content: Any, *keys: str) -> dict[str, Any]:
    """A table inside of tables; an empty one where there is none."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def _poetry_bounds(text: str) -> str:
    """What Poetry's ``^1.2``, ``~1.2`` and ``1.2`` mean, as pip writes it; "" for alternatives (``||``)."""
    if "|" in text:
        return ""
    bounds = []
    for part in filter(None, map(str.strip, text.split(","))):
        sign, numbers = re.match(r"(\^|~(?!=)|)\s*v?(.*)", part).groups()  # type: ignore[union-attr]
        parts = numbers.split(".")
        if sign == "^":
            fixed = next((n for n, one in enumerate(parts) if one != "0"), len(parts) - 1) + 1
            bounds.append(f"=={'.'.join(parts[:fixed])}.*")
        elif sign == "~":
            bounds.append(f"=={'.'.join(parts[:2])}.*")
        elif numbers[:1].isdigit():
            bounds.append(f"=={numbers}")
        elif numbers != "*":
            bounds.append(part)
    return ",".join(bounds)


def _of_setup(text: str) -> Iterator[Pin]:
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
            yield from _of_requirement(line, "setup.cfg") if line.strip() else ()


def _of_environment(text: str, path: str) -> Iterator[Pin]:
    """Pins of conda's list of dependencies: lines ``- name=version``, and those of pip, which are indented further."""
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
            yield from _of_requirement(item[2], path)
        else:
            yield from _of_conda(item[2], path)


def _of_conda(text: str, path: str) -> Iterator[Pin]:
    """The pin of one of conda's specifications: ``name=1.2``, ``name=1.2.3=build``, ``name 1.2.*``, ``name>=1,<2``."""
    spec = _CONDA_SPEC.fullmatch(text.strip())
    if spec is None or "|" in spec[2]:
        return
    name, rest = canonicalize_name(spec[1]), spec[2].strip()
    exact = re.fullmatch(r"(==?|)\s*(\d[\w.]*?)(\.?\*)?(?:[=\s]\S+)?", rest)
    if exact is not None:
        is_prefix = exact[3] is not None or (exact[1] == "=" and "=" not in rest[1:])
        rest = f"=={exact[2]}{'.*' if is_prefix else ''}"
    yield from _pin(_CONDA.get(name, name), rest.replace(" ", ""), text.strip(), path)

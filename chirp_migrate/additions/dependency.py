"""The line that makes a migrated project ask for what it now imports.

What can be installed is the distribution ``chirp-migrate``; it ships the runtime ``chirpid_patch``. The files are
edited as they are written, so that comments, order and newlines of the rest stay as they are.
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from chirp_migrate.plans.plan import FilePlan
from chirp_migrate.source.files import read_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "dependency_plan",
    "has_dependencies",
    "imports_runtime",
    "need_runtime",
    "requirement",
    "with_install_requires",
    "with_project_dependency",
    "with_requirement",
]

_DISTRIBUTION = "chirp-migrate"
#: What is added to a list of dependencies, and with the comment to a requirements file.
_ADDED = re.compile(r"chirp-migrate>=\d+\.\d+(  # provides chirpid_patch, the migrated data loading)?")
_COMMENT = "  # provides chirpid_patch, the migrated data loading"

#: Requirement files of a project, the first that exists is the one.
_REQUIREMENTS = (
    "requirements.txt",
    "requirements/base.txt",
    "requirements/requirements.txt",
    "requirements/common.txt",
    "requirements/main.txt",
)
_PYPROJECT, _SETUP, _SETUP_SCRIPT = "pyproject.toml", "setup.cfg", "setup.py"
_IMPORT = re.compile(rb"\b(?:from|import)\s+chirpid_patch\b")


def requirement(version: str) -> str:
    """Requirement on this release line: ``chirp-migrate>=0.1`` for version ``0.1.0``."""
    return f"{_DISTRIBUTION}>={'.'.join(version.split('.')[:2])}"


def imports_runtime(content: bytes) -> bool:
    """Whether a file of Python, or a notebook, imports the runtime."""
    return _IMPORT.search(content) is not None


def need_runtime(files: Iterable[FilePlan]) -> bool:
    """Whether files that are written import the runtime, apart from those that only provide it."""
    return any(imports_runtime(file.after) for file in files if file.note not in ("dependency", "vendor"))


def has_dependencies(root: Path) -> bool:
    """Whether a file in which projects list what they depend on is in ``root``."""
    return any((root / name).is_file() for name in (*_REQUIREMENTS, _PYPROJECT, _SETUP))


def dependency_plan(root: Path, version: str) -> tuple[FilePlan | None, str | None]:
    """What to change so that ``root`` depends on the runtime, and what to tell the user.

    The first of ``requirements.txt``, ``requirements/base.txt`` and its like, the ``[project]`` table of
    ``pyproject.toml``, and ``install_requires`` of ``setup.cfg`` is extended; nothing is when it already asks for the
    distribution.

    Args:
        root: folder of the project.
        version: version of this program.

    Returns:
        The edit, if there is one to make, and a sentence, if something is left for the user to do.
    """
    wanted = requirement(version)
    is_in_script = b"install_requires" in _content(root / _SETUP_SCRIPT)
    place = f"install_requires in {_SETUP_SCRIPT}" if is_in_script else "what the project installs"
    by_hand = f"so that chirpid_patch can be imported: add {wanted} to {place}, or use --vendor."
    name = next((name for name in _REQUIREMENTS if (root / name).is_file()), None)
    pyproject, setup = root / _PYPROJECT, root / _SETUP
    if name is None and not pyproject.is_file() and not setup.is_file():
        if is_in_script:
            return None, f"{_SETUP_SCRIPT} is a program and was left as it is. Do this {by_hand}"
        return None, f"The project has neither requirements.txt nor pyproject.toml nor setup.cfg. Do this {by_hand}"
    in_pyproject, in_setup = _listed(pyproject, _project_dependencies), _listed(setup, _install_requires)
    is_in_setup = name is None and _lacks_ours(in_setup) and in_pyproject is None
    path = name or (_SETUP if is_in_setup else _PYPROJECT)
    if not (root / path).resolve().is_relative_to(root.resolve()):
        return None, f"{path} is a link that leaves the folder and was left as it is. Do this {by_hand}"
    try:
        before = read_file(root / path)
        edit = with_requirement if name else with_install_requires if is_in_setup else with_project_dependency
        after = edit(before.decode("utf-8"), wanted).encode("utf-8")
    except OSError as error:
        return None, f"{path} cannot be read ({error.strerror}). Do this {by_hand}"
    except UnicodeDecodeError:
        return None, f"{path} is not UTF-8 and was left as it is. Do this {by_hand}"
    except ValueError as error:
        return None, f"{path} was left as it is: {error}. Do this {by_hand}"
    plan = None if after == before else FilePlan(path, before, after, "dependency")
    other = _PYPROJECT if _lacks_ours(in_pyproject) else _SETUP if _lacks_ours(in_setup) else None
    other = _SETUP_SCRIPT if other is None and is_in_script else other
    if name and other:
        return plan, f"{other} lists dependencies besides {name}: add {wanted} there too if you install from it."
    return plan, None


def _content(path: Path) -> bytes:
    """The bytes of a file; none of one that cannot be read."""
    try:
        return read_file(path)
    except OSError:
        return b""


def dependency_removal(root: Path) -> FilePlan | None:
    """What takes back the dependency that :func:`dependency_plan` added, for a project that gets a copy instead."""
    for name, without in (*((one, without_requirement) for one in _REQUIREMENTS), (_PYPROJECT, without_entry),
                          (_SETUP, without_requirement)):  # fmt: skip
        try:
            before = read_file(root / name)
            after = without(before.decode("utf-8")).encode("utf-8")
        except (OSError, ValueError):
            continue
        if after != before:
            return FilePlan(name, before, after, "dependency")
    return None


def without_requirement(text: str) -> str:
    """A requirements file or ``setup.cfg`` without the lines that were added to it."""
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if not _ADDED.fullmatch(line.strip())]
    after = "".join(kept)
    return after if text.endswith(("\n", "\r")) or len(kept) == len(lines) else after.rstrip("\r\n")


def without_entry(text: str) -> str:
    """A ``pyproject.toml`` without the dependency that was added to it; as it is if that is not plain to do."""
    listed = _project_dependencies(text) or []
    mine = [place for place, one in enumerate(listed) if isinstance(one, str) and _ADDED.fullmatch(one)]
    if not mine:
        return text
    import tomlkit.exceptions

    before = _parsed(text)
    left = [one for place, one in enumerate(listed) if place not in mine]
    try:
        whole: Any = tomlkit.parse(text)
        for place in reversed(mine):
            del whole["project"]["dependencies"][place]
        after = tomlkit.dumps(whole)
    except tomlkit.exceptions.TOMLKitError:
        return text
    return after if _parsed(after) == {**before, "project": {**before["project"], "dependencies": left}} else text


def with_requirement(text: str, wanted: str) -> str:
    """A requirements file with the line for ``wanted``, or as it is when it already asks for the distribution.

    Newline style and a missing final newline are kept.

    Raises:
        ValueError: the file pins hashes, which a line without them would break.
    """
    body = text.removeprefix("\ufeff")
    if any(_names_distribution(line) for line in body.splitlines()):
        return text
    if re.search(r"(?m)^[^#\n]*--(?:hash=|require-hashes)", body):
        raise ValueError("it pins hashes")
    if re.search(r"\\\s*\Z", body):
        raise ValueError("its last line is continued on a line that is not there")
    newline = _newline(body)
    line = wanted + _COMMENT
    if not body:
        return text + line + newline
    return text + line + newline if body.endswith("\n") else text + newline + line


def with_project_dependency(text: str, wanted: str) -> str:
    """A ``pyproject.toml`` whose ``[project]`` dependencies end in ``wanted``, or as it is when they have it.

    Raises:
        ValueError: it is not TOML, it has no list of dependencies, or the list cannot be extended for sure.
    """
    listed = _project_dependencies(text)
    if listed is None:
        raise ValueError("it has no list `dependencies` under [project]")
    if not _lacks_ours(listed):
        return text
    import tomlkit.exceptions  # which most runs do not need

    before = _parsed(text)
    expected = {**before, "project": {**before["project"], "dependencies": [*listed, wanted]}}
    try:
        whole: Any = tomlkit.parse(text)
        kept = tomlkit.dumps(whole)
        whole["project"]["dependencies"].append(wanted)
        after = tomlkit.dumps(whole)
    except tomlkit.exceptions.TOMLKitError as error:
        raise ValueError(f"it cannot be added to ({error})") from None
    if kept != text or _parsed(after) != expected:
        raise ValueError("its list of dependencies is written in a way that is not understood here")
    return after


def with_install_requires(text: str, wanted: str) -> str:
    """A ``setup.cfg`` whose ``install_requires`` ends in ``wanted``, or as it is when it has it.

    Raises:
        ValueError: it is no INI file, it has no such list, or the list is not written there.
    """
    before = _install_requires(text)
    if before is None:
        raise ValueError("it has no list `install_requires` under [options]")
    if not _lacks_ours(before):
        return text
    if before and before[0].startswith("file:"):
        raise ValueError("its `install_requires` names a file")
    lines = text.splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if re.match(r"install_requires[ \t]*[=:]", line))
    last = first
    for number in range(first + 1, len(lines)):
        if lines[number].strip() and not lines[number][0].isspace() and not lines[number].startswith(("#", ";")):
            break
        if lines[number].strip() and lines[number][0].isspace():
            last = number
    indent = "    " if last == first else re.match(r"[ \t]*", lines[last]).group()  # type: ignore[union-attr]
    newline = _newline(text)
    ended = lines[last] if lines[last].endswith("\n") else lines[last] + newline
    lines[last] = f"{ended}{indent}{wanted}{newline}"
    after = "".join(lines)
    if _install_requires(after) != [*before, wanted]:
        raise ValueError("its list of dependencies is written in a way that is not understood here")
    return after


def _install_requires(text: str) -> list[Any] | None:
    """Entries of that list in a ``setup.cfg``; None where there is no such list."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(f"it cannot be read ({error.message})") from None
    listed = parser.get("options", "install_requires", fallback=None)
    return None if listed is None else [line.strip() for line in listed.splitlines() if line.strip()]


def _project_dependencies(text: str) -> list[Any] | None:
    """Entries of ``dependencies`` under ``[project]`` in a ``pyproject.toml``; None where there is no such list."""
    listed = _parsed(text).get("project", {}).get("dependencies")
    return listed if isinstance(listed, list) else None


def _listed(file: Path, read: Callable[[str], list[Any] | None]) -> list[Any] | None:
    """What a file lists as dependencies; None where it does not, cannot be read, or is not there."""
    try:
        return read(read_file(file).decode("utf-8"))
    except (OSError, ValueError):
        return None


def _lacks_ours(listed: list[Any] | None) -> bool:
    """Whether dependencies are listed, and the distribution is not among them."""
    return listed is not None and not any(isinstance(one, str) and _names_distribution(one) for one in listed)


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not valid TOML ({error})") from None


def _names_distribution(line: str) -> bool:
    name = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
    return name is not None and canonicalize_name(name.group(1)) == _DISTRIBUTION


def _newline(text: str) -> str:
    return "\r\n" if re.search(r"\r\n", text) else "\n"

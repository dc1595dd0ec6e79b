"""The line with which a migrated project requires ``chirpid_patch``, which its code imports.

The line is added where the project lists torch, so that exactly the installations with torch get the runtime. A project
that is no package always gets the line in its requirements file. The distribution is ``chirpid-patch``. Edits keep
comments, order and newlines of the rest of a file.
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from chirp_migrate.additions.requirement_pins import name_of, requirement_files, setup_arguments, text_of
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

_DISTRIBUTION = "chirpid-patch"
_COMMENT = "  # provides chirpid_patch, the migrated data loading"
#: The entry that ``apply`` adds to a list of dependencies; in a requirements file it has the comment.
_ADDED = re.compile(rf"chirpid-patch>=\d+\.\d+,<\d+(\.\d+)?({_COMMENT})?")

#: Requirement files of a project; the first existing file counts.
_REQUIREMENTS = (
    "requirements.txt",
    "requirements/base.txt",
    "requirements/requirements.txt",
    "requirements/common.txt",
    "requirements/main.txt",
)
#: Distributions of torch, or installed together with torch.
_BRINGS_TORCH = re.compile(
    r"torch\w*|pytorch\w*|(py)?torch-.+|.+-(py)?torch|lightning|timm|accelerate|fastai|monai|kornia|peft|diffusers"
    r"|ultralytics|sentence-transformers|chirp-migrate|chirpid-patch"
)
_PYPROJECT, _SETUP, _SETUP_SCRIPT = "pyproject.toml", "setup.cfg", "setup.py"
_IMPORT = re.compile(rb"\b(?:from|import)\s+chirpid_patch\b")


def requirement(version: str) -> str:
    """Return the requirement for the runtime versions that work with code migrated by ``version``.

    It is ``chirpid-patch>=0.1,<0.2`` for version ``0.1.0``, and ``chirpid-patch>=1.2,<2`` for ``1.2.3``.
    """
    major, minor = map(int, version.split(".")[:2])
    return f"{_DISTRIBUTION}>={major}.{minor},<{major + 1 if major else f'0.{minor + 1}'}"


def imports_runtime(content: bytes) -> bool:
    """Return whether a file of Python, or a notebook, imports the runtime."""
    return _IMPORT.search(content) is not None


def need_runtime(files: Iterable[FilePlan]) -> bool:
    """Return whether written files import the runtime, apart from files that only provide it."""
    return any(imports_runtime(file.after) for file in files if file.note not in ("dependency", "vendor"))


def has_dependencies(root: Path) -> bool:
    """Return whether ``root`` has a file in which projects list dependencies."""
    return any((root / name).is_file() for name in (*_REQUIREMENTS, _PYPROJECT, _SETUP))


def dependency_plan(root: Path, version: str) -> tuple[FilePlan | None, str | None]:
    """Return the edit that makes ``root`` depend on the runtime, and a note for the user.

    The function extends the first list that names torch: ``requirements.txt``, ``requirements/base.txt`` and similar
    files, ``dependencies`` under ``[project]`` in ``pyproject.toml``, ``install_requires`` of ``setup.cfg``, or else
    the extras of ``pyproject.toml``. If no list names torch, it extends the requirements file of a project that is no
    package. A list that already names the runtime does not change.

    Args:
        root: folder of the project.
        version: version of this program.

    Returns:
        The edit, if any, and a sentence, if the user has to do something.
    """
    wanted = requirement(version)
    edits, others = _lists_with_torch(root)
    if not edits:
        if not others:
            what = f"No dependency list of the project names torch, so none was changed. Install {wanted}"
            return None, f"{what} where the migrated files run, or use --vendor."
        whom = f"{' and '.join(others)}, which {'names' if len(others) == 1 else 'name'} torch"
        return None, f"The changed files import chirpid_patch: add {wanted} to {whom}, or use --vendor."
    path, edit = edits[0]
    others = [*dict.fromkeys(name for name, _ in edits[1:] if name != path), *others]
    where = " and ".join(others or [path])
    by_hand = f"The changed files import chirpid_patch: add {wanted} to {where}, or use --vendor."
    if not (root / path).resolve().is_relative_to(root.resolve()):
        return None, f"{path} was not changed, because it is a link to a place outside the project. {by_hand}"
    try:
        before = read_file(root / path)
        after = edit(before.decode("utf-8"), wanted).encode("utf-8")
    except OSError as error:
        return None, f"{path} cannot be read ({error.strerror}). {by_hand}"
    except UnicodeDecodeError:
        return None, f"{path} is not UTF-8 and was not changed. {by_hand}"
    except ValueError as error:
        return None, f"{path} was not changed: {error}. {by_hand}"
    plan = None if after == before else FilePlan(path, before, after, "dependency")
    if others:
        whom = f"{' and '.join(others)} {'names' if len(others) == 1 else 'name'} torch besides {path}"
        return plan, f"{whom}: add {wanted} there too if you install from it."
    return plan, None


_Edit = Callable[[str, str], str]


def _lists_with_torch(root: Path) -> tuple[list[tuple[str, _Edit]], list[str]]:
    """Return the lists with torch: editable files with their edits in order of preference, and all other files.

    The other files do not include lists that already require the distribution.
    """
    edits: list[tuple[str, _Edit]] = []
    others: list[str] = []
    named = [path.relative_to(root).as_posix() for path in requirement_files(root)]
    for path in (*(one for one in _REQUIREMENTS if one in named), *(one for one in named if one not in _REQUIREMENTS)):
        lines = text_of(root / path).splitlines()
        if any(map(_brings_torch, lines)):
            if path in _REQUIREMENTS and not edits:
                edits.append((path, with_requirement))
            elif _lacks_runtime(lines):
                others.append(path)
    for path, read, edit in (
        (_PYPROJECT, _project_dependencies, with_project_dependency),
        (_SETUP, _install_requires, with_install_requires),
        (_PYPROJECT, _extra_dependencies, with_extra_dependency),
    ):
        entries = _read_dependencies(root / path, read)
        if entries is not None and any(map(_brings_torch, entries)) and (not edits or _lacks_runtime(entries)):
            edits.append((path, edit))
    for path, entries in ((_PYPROJECT, _poetry_dependencies(root)), (_SETUP_SCRIPT, _setup_script_dependencies(root))):
        if any(map(_brings_torch, entries)) and _lacks_runtime(entries):
            others.append(path)
    main = next((one for one in _REQUIREMENTS if one in named), None)
    if main is not None and not edits and not others and not _is_package(root):
        edits.append((main, with_requirement))
    return edits, list(dict.fromkeys(others))


def _is_package(root: Path) -> bool:
    """Return whether other projects may install this one, because a file describes it as a package."""
    if (root / _SETUP).is_file() or (root / _SETUP_SCRIPT).is_file():
        return True
    try:
        content = _parse_toml(text_of(root / _PYPROJECT))
    except ValueError:
        return True
    return "project" in content or "poetry" in content.get("tool", {})


def _brings_torch(entry: Any) -> bool:
    return isinstance(entry, str) and _BRINGS_TORCH.fullmatch(name_of(entry)) is not None


def _poetry_dependencies(root: Path) -> list[Any]:
    """Return the packages in Poetry's table of dependencies."""
    try:
        table = _parse_toml(text_of(root / _PYPROJECT)).get("tool", {}).get("poetry", {}).get("dependencies", {})
    except ValueError:
        return []
    return list(table) if isinstance(table, dict) else []


def _setup_script_dependencies(root: Path) -> list[Any]:
    """Return the dependencies and extras that ``setup.py`` lists as literals."""
    given = setup_arguments(text_of(root / _SETUP_SCRIPT))
    extras = given.get("extras_require")
    lists = (given.get("install_requires"), *(extras.values() if isinstance(extras, dict) else ()))
    return [one for entries in lists if isinstance(entries, list | tuple) for one in entries]


def dependency_removal(root: Path) -> FilePlan | None:
    """Return the edit that removes the dependency that ``apply`` added; None if there is none."""
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
    """Return a requirements file or ``setup.cfg`` without the lines that ``apply`` added."""
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if not _ADDED.fullmatch(line.strip())]
    after = "".join(kept)
    return after if text.endswith(("\n", "\r")) or len(kept) == len(lines) else after.rstrip("\r\n")


def without_entry(text: str) -> str:
    """Return a ``pyproject.toml`` without the added dependencies; unchanged if the edit is not plain."""
    expected: Any = _parse_toml(text)
    lists = [
        (table, name)
        for table, name, entries in _toml_lists(expected)
        if any(isinstance(one, str) and _ADDED.fullmatch(one) for one in entries)
    ]
    if not lists:
        return text
    import tomlkit.exceptions

    try:
        whole: Any = tomlkit.parse(text)
        for content in (expected, whole):
            for table, name in lists:
                _remove_added(_inside(content, table)[name])
        after = tomlkit.dumps(whole)
    except tomlkit.exceptions.TOMLKitError:
        return text
    return after if _parse_toml(after) == expected else text


def _remove_added(entries: Any) -> None:
    """Remove the entries of a list that ``apply`` added."""
    for place in reversed(range(len(entries))):
        if isinstance(entries[place], str) and _ADDED.fullmatch(entries[place]):
            del entries[place]


def _toml_lists(content: Any) -> Iterator[tuple[tuple[str, ...], str, list[Any]]]:
    """Yield the lists of dependencies under ``[project]``: the table, the name of the list, and its entries."""
    project = content.get("project")
    for table, of in (
        (("project",), project),
        (
            ("project", "optional-dependencies"),
            project.get("optional-dependencies") if isinstance(project, dict) else 0,
        ),
    ):
        for name, entries in of.items() if isinstance(of, dict) else ():
            if isinstance(entries, list) and (len(table) > 1 or name == "dependencies"):
                yield table, name, entries


def with_requirement(text: str, wanted: str) -> str:
    """Return a requirements file with the line for ``wanted``; unchanged if it requires the distribution.

    Newline style and a missing final newline are kept.

    Raises:
        ValueError: the file pins hashes, so that a line without hashes would break it.
    """
    body = text.removeprefix("\ufeff")
    if any(_names_distribution(line) for line in body.splitlines()):
        return text
    if re.search(r"(?m)^[^#\n]*--(?:hash=|require-hashes)", body):
        raise ValueError("it pins hashes")
    if re.search(r"\\\s*\Z", body):
        raise ValueError("its last line ends with a backslash, and no line follows")
    newline, line = _newline(body), wanted + _COMMENT
    if not body:
        return text + line + newline
    return text + line + newline if body.endswith("\n") else text + newline + line


def with_project_dependency(text: str, wanted: str) -> str:
    """Return a ``pyproject.toml`` whose ``[project]`` dependencies end in ``wanted``, unless they contain it already.

    Raises:
        ValueError: it is not TOML, it has no list of dependencies, or the list cannot be extended reliably.
    """
    listed = _project_dependencies(text)
    if listed is None:
        raise ValueError("it has no list `dependencies` under [project]")
    return _add_entry(text, wanted, ("project",), *(["dependencies"] if _lacks_runtime(listed) else []))


def _add_entry(text: str, wanted: str, table: Sequence[str], *names: str) -> str:
    """Return a ``pyproject.toml`` in which the lists of a table have the additional entry ``wanted``.

    Raises:
        ValueError: it is not TOML, or the lists cannot be extended reliably.
    """
    if not names:
        return text
    import tomlkit.exceptions  # which most runs do not need

    expected: Any = _parse_toml(text)
    try:
        whole: Any = tomlkit.parse(text)
        kept = tomlkit.dumps(whole)
        for content in (expected, whole):
            for name in names:
                _inside(content, table)[name].append(wanted)
        after = tomlkit.dumps(whole)
    except tomlkit.exceptions.TOMLKitError as error:
        raise ValueError(f"chirp-migrate cannot edit it ({error})") from None
    if kept != text or _parse_toml(after) != expected:
        raise ValueError("its list of dependencies has a form that chirp-migrate cannot parse")
    return after


def _inside(content: Any, table: Sequence[str]) -> Any:
    for key in table:
        content = content[key]
    return content


def with_extra_dependency(text: str, wanted: str) -> str:
    """Return a ``pyproject.toml`` in which each extra with torch ends in ``wanted``, unless it contains it already.

    Raises:
        ValueError: it is not TOML, or the lists cannot be extended reliably.
    """
    return _add_entry(text, wanted, ("project", "optional-dependencies"), *_extras_with_torch(text))


def with_install_requires(text: str, wanted: str) -> str:
    """Return a ``setup.cfg`` whose ``install_requires`` ends in ``wanted``, unless it contains it already.

    Raises:
        ValueError: it is no INI file, it has no such list, or the list is in another file.
    """
    before = _install_requires(text)
    if before is None:
        raise ValueError("it has no list `install_requires` under [options]")
    if not _lacks_runtime(before):
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
        raise ValueError("its list of dependencies has a form that chirp-migrate cannot parse")
    return after


def _install_requires(text: str) -> list[Any] | None:
    """Return the entries of ``install_requires`` in a ``setup.cfg``; None if there is no such list."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(f"it cannot be read ({error.message})") from None
    listed = parser.get("options", "install_requires", fallback=None)
    return None if listed is None else [line.strip() for line in listed.splitlines() if line.strip()]


def _project_dependencies(text: str) -> list[Any] | None:
    """Return the entries of ``dependencies`` under ``[project]`` in a ``pyproject.toml``.

    The result is None if there is no such list.
    """
    lists = (entries for table, _, entries in _toml_lists(_parse_toml(text)) if len(table) == 1)
    return next(lists, None)


def _extras_with_torch(text: str) -> list[str]:
    """Return the names of the extras of a ``pyproject.toml`` with torch and without the distribution."""
    return [
        name
        for table, name, entries in _toml_lists(_parse_toml(text))
        if len(table) > 1 and any(map(_brings_torch, entries)) and _lacks_runtime(entries)
    ]


def _extra_dependencies(text: str) -> list[Any]:
    """Return the packages in the extras of a ``pyproject.toml``."""
    return [one for table, _, entries in _toml_lists(_parse_toml(text)) if len(table) > 1 for one in entries]


def _read_dependencies(file: Path, read: Callable[[str], list[Any] | None]) -> list[Any] | None:
    """Return the dependencies that a file lists; None if it lists none, cannot be read, or does not exist."""
    try:
        return read(read_file(file).decode("utf-8"))
    except (OSError, ValueError):
        return None


def _lacks_runtime(listed: list[Any] | None) -> bool:
    """Return whether dependencies are listed, and the distribution is not among them."""
    return listed is not None and not any(isinstance(one, str) and _names_distribution(one) for one in listed)


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = tomllib.loads(text)
        return parsed
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not valid TOML ({error})") from None


def _names_distribution(line: str) -> bool:
    return name_of(line) == _DISTRIBUTION


def _newline(text: str) -> str:
    return "\r\n" if re.search(r"\r\n", text) else "\n"

"""Read the settings of a run from ``[tool.chirp-migrate]`` in the project's ``pyproject.toml`` and from options.

docs/settings.md describes the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chirp_migrate.console.text import suggest_name
from chirp_migrate.engine.discover import project_root
from chirp_migrate.errors import UsageProblem
from chirp_migrate.rules import Rule, all_rules, codes_matching, selected_codes, unknown_rule_message
from chirp_migrate.source.files import read_file
from chirp_migrate.source.git import work_tree_top
from chirp_migrate.source.toml import parse_toml
from chirp_migrate.syntax.project import is_test_file

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_FILE = "pyproject.toml"
_TABLE = "chirp-migrate"
#: Commands that have their own table of settings, such as ``[tool.chirp-migrate.verify]``.
_COMMANDS = ("verify", "tune")
KEYS = (
    *("include", "exclude", "select", "ignore", "per-file-ignores", "unsafe", "notebooks", "tests", "scaffold"),
    *("vendor", "all-loaders", *_COMMANDS),
)


@dataclass(frozen=True)
class Settings:
    """The files to check, the rules to run and the rewrites to apply; by default all files, all rules, safe rewrites.

    Attributes:
        include: patterns of the files to check; empty for all files.
        exclude: patterns of files that are not rewritten.
        codes: codes of the rules to run; ``None`` for all rules.
        file_ignores: pairs (file pattern, rule codes). Findings of these rules are suppressed in files that match the
            pattern.
        unsafe: whether to also apply rules that change what training learns.
        notebooks: whether notebooks are checked; ``None`` checks only notebooks without stored outputs.
        tests: whether tests are checked.
        scaffold: whether to add the scaffold, which consists of modules, a notebook and tests; ``None`` adds the
            scaffold only if migrated code imports the runtime and ``utils/`` has a training module such as
            ``training_engine.py``.
        vendor: whether the runtime is copied into the project.
        all_loaders: whether to also rewrite loaders that gain nothing from a rewrite.
        excluded: patterns of the option ``--exclude`` for further files that are not rewritten. These patterns are
            relative to the folder of the run.
        prefix: the folder of the run relative to the folder of ``pyproject.toml``, with ``/`` at its end; an empty
            string if both folders are the same. All patterns except ``excluded`` are relative to the folder of
            ``pyproject.toml``.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    codes: frozenset[str] | None = None
    file_ignores: tuple[tuple[str, frozenset[str]], ...] = ()
    unsafe: bool = False
    notebooks: bool | None = None
    tests: bool = False
    scaffold: bool | None = None
    vendor: bool = False
    all_loaders: bool = False
    excluded: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return the rules to run, sorted by code."""
        return tuple(rule for rule in all_rules() if self.codes is None or rule.code in self.codes)

    def why_left_out(self, path: str) -> str | None:
        """Return why the settings exclude the file at ``path``; ``None`` if the settings do not exclude the file."""
        name = self.prefix + path
        if matches_any_glob(self.exclude, name):
            return f"excluded in {_FILE}"
        if self.include and not matches_any_glob(self.include, name):
            return f"not included in {_FILE}"
        if matches_any_glob(self.excluded, path):
            return "excluded with --exclude"
        return "a test file; --tests includes tests" if self.leaves_as_test(path) else None

    def leaves_as_test(self, path: str) -> bool:
        """Return whether the file at ``path`` is excluded because its name or folder is typical of tests."""
        return not self.tests and is_test_file(path)

    def ignored_in(self, path: str) -> frozenset[str]:
        """Return the codes of the rules whose findings are suppressed in the file at ``path``."""
        name = self.prefix + path
        return frozenset().union(*(codes for glob, codes in self.file_ignores if matches_any_glob((glob,), name)))

    def overridden(
        self,
        *,
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        exclude: Sequence[str] = (),
        **flags: bool | None,
    ) -> Settings:
        """Return a copy of these settings in which options of the command line override the values.

        Args:
            select: codes or names of the rules to run, in place of ``select`` and ``ignore`` of the settings; empty to
                keep the rules of the settings.
            ignore: codes or names of rules that do not run, in addition to the settings.
            exclude: patterns of files that are not rewritten, in addition to the settings.
            flags: values of attributes of the settings, such as ``unsafe``; None keeps the value of the settings.

        Raises:
            UsageProblem: an item of ``select`` or ``ignore`` matches no rule, no rule remains, or a pattern is invalid.
        """
        for glob in exclude:
            if glob.startswith("!"):
                raise UsageProblem(f"--exclude: {glob!r} begins with !, which is only permitted in settings.")
            if problem := _check_glob(glob):
                raise UsageProblem(f"--exclude: {problem}.")
        for option, selectors in (("--select", select), ("--ignore", ignore)):
            for selector in selectors:
                if not codes_matching(selector):
                    raise UsageProblem(f"{option}: {unknown_rule_message(selector)}.")
        codes = self.codes
        if select:
            codes = selected_codes(select, ignore)
        elif ignore:
            codes = frozenset(rule.code for rule in self.rules).difference(*map(codes_matching, ignore))
        if codes is not None and not codes:
            raise UsageProblem("no rule is left to run: select a rule that is not ignored.")
        given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
        return replace(self, codes=codes, excluded=(*self.excluded, *exclude), **given)


def read_settings(path: Path) -> Settings:
    """Return the settings for ``path``, from the nearest ``pyproject.toml`` with a table ``[tool.chirp-migrate]``.

    The function searches the folder ``path``, or the folder of the file ``path``. In a git work tree, the function also
    searches each folder above, up to the top of the work tree.

    Raises:
        UsageProblem: the project ``path`` does not exist, a ``pyproject.toml`` cannot be read, or the table of this
            program has an unknown key or an invalid value.
    """
    root = project_root(path)
    file, table = _nearest_table(root)
    if table is None:
        return Settings()
    prefix = "" if file.parent == root else root.relative_to(file.parent).as_posix() + "/"
    return _TableReader(file, table).settings(prefix)


def read_command_table(path: Path, command: str) -> tuple[Path, Mapping[str, Any]]:
    """Return the path of the settings file, and its table ``[tool.chirp-migrate.COMMAND]``.

    The caller must check the contents of the table.

    Args:
        path: the project, as passed to the command.
        command: name of the command, such as ``verify``.

    Returns:
        The file that :func:`read_settings` reads, and the table of the command. Without such a file, the result is the
        path of ``pyproject.toml`` in ``path``, and an empty table.

    Raises:
        UsageProblem: see :func:`read_settings`.
    """
    file, table = _nearest_table(project_root(path))
    own = (table or {}).get(command, {})
    if not isinstance(own, dict):
        raise UsageProblem(f"{describe_setting_place(file, command)} must be a table.")
    return file, own


def describe_setting_place(file: Path, key: str, command: str = "") -> str:
    """Return the place of a setting as text for a message: the file, the line, the table and the key.

    Args:
        file: the settings file.
        key: key of the setting.
        command: name of the command that has the setting; "" for a setting of all commands.
    """
    table = f"tool.{_TABLE}.{command}".rstrip(".")
    line, inside = "", False
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", text):
            inside = header.group(1) == table
        elif inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", text):
            line = f", line {number}"
            break
    return f"{file}{line}: [{table}] {key}"


def _nearest_table(root: Path) -> tuple[Path, Mapping[str, Any] | None]:
    """Return the nearest ``pyproject.toml`` with the table of this program, and this table.

    Without such a file, the result is the path of ``pyproject.toml`` in ``root``, and None.
    """
    top = work_tree_top(root) or root
    for folder in (one for one in (root, *root.parents) if one.is_relative_to(top)):
        table = _read_table(folder / _FILE)
        if table is not None:
            return folder / _FILE, table
    return root / _FILE, None


def _read_table(file: Path) -> Mapping[str, Any] | None:
    try:
        data = read_file(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageProblem(
            f"{file} cannot be read ({error.strerror}), but may contain settings: make the file readable."
        ) from None
    if not any(_TABLE.encode(code) in data for code in ("utf-8", "utf-16-le", "utf-16-be")):
        return None
    try:
        content = parse_toml(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageProblem(
            f"{file} is not UTF-8, which TOML requires: save the file as UTF-8, because it may contain settings."
        ) from None
    except ValueError as error:
        raise UsageProblem(
            f"{file} is not valid TOML ({error}): correct the file, because it may contain settings."
        ) from None
    tool = content.get("tool", {})
    table = tool.get(_TABLE) if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageProblem(f"{file}: tool.{_TABLE} must be a table.")
    return table


@dataclass(frozen=True)
class _TableReader:
    """Reads the settings from a table, and checks each key and its value."""

    file: Path
    table: Mapping[str, Any]

    def settings(self, prefix: str) -> Settings:
        for key in self.table:
            if key not in KEYS:
                raise self._usage_problem(key, f"is unknown; {suggest_name(key, KEYS, 'the keys are')}")
        select, ignore = self._read_selectors("select"), self._read_selectors("ignore")
        codes = selected_codes(select or ["ALL"], ignore)
        if not codes:
            raise self._usage_problem(
                "ignore" if ignore else "select", "leaves no rule to run: select a rule that is not ignored."
            )
        return Settings(
            include=self._read_patterns("include"),
            exclude=self._read_patterns("exclude"),
            codes=codes if select or ignore else None,
            file_ignores=self._file_ignores(),
            unsafe=self._read_flag("unsafe", default=False),
            notebooks=self._read_flag("notebooks", default=True) if "notebooks" in self.table else None,
            tests=self._read_flag("tests", default=False),
            scaffold=self._read_flag("scaffold", default=True) if "scaffold" in self.table else None,
            vendor=self._read_flag("vendor", default=False),
            all_loaders=self._read_flag("all-loaders", default=False),
            prefix=prefix,
        )

    def _usage_problem(self, key: str, what: str) -> UsageProblem:
        name, space, glob = key.partition(" ")
        return UsageProblem(f"{describe_setting_place(self.file, name)}{space}{glob} {what}")

    def _read_strings(self, key: str, value: object) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self._usage_problem(key, "must be a list of strings.")
        return value

    def _read_selectors(self, key: str, value: object = None) -> list[str]:
        selectors = self._read_strings(key, self.table.get(key, []) if value is None else value)
        for selector in selectors:
            if not codes_matching(selector):
                raise self._usage_problem(key, f"is invalid: {unknown_rule_message(selector)}.")
        return selectors

    def _read_patterns(self, key: str) -> tuple[str, ...]:
        return tuple(self._checked(key, glob) for glob in self._read_strings(key, self.table.get(key, [])))

    def _checked(self, key: str, glob: str) -> str:
        if problem := _check_glob(glob):
            raise self._usage_problem(key, f"is invalid: {problem}.")
        return glob

    def _file_ignores(self) -> tuple[tuple[str, frozenset[str]], ...]:
        key = "per-file-ignores"
        table = self.table.get(key, {})
        if not isinstance(table, dict):
            raise self._usage_problem(key, 'must be a table such as {"tests/*" = ["CHP007"]}.')
        if negated := next((glob for glob in table if glob.startswith("!")), None):
            raise self._usage_problem(
                key, f"is invalid: {negated!r} begins with !, which is only permitted in include and exclude."
            )
        return tuple(
            (
                self._checked(key, glob),
                frozenset().union(*map(codes_matching, self._read_selectors(f'{key} "{glob}"', value))),
            )
            for glob, value in table.items()
        )

    def _read_flag(self, key: str, *, default: bool) -> bool:
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self._usage_problem(key, "must be true or false.")
        return value


def _check_glob(glob: str) -> str:
    """Return why ``glob`` is not a valid pattern; "" for a valid pattern."""
    try:
        is_valid = any(pattern.include is not None for pattern in _compile_globs((glob,)).patterns)
    except (ValueError, re.error):
        is_valid = False
    return "" if is_valid else f"{glob!r} is not a valid pattern of .gitignore"


def matches_any_glob(globs: tuple[str, ...], path: str) -> bool:
    """Return whether the patterns ``globs`` match a posix path, by the rules of ``.gitignore``.

    A leading ``./`` in a pattern has the same meaning as a leading ``/``: the pattern begins at the folder to which
    ``path`` is relative.
    """
    return bool(globs) and _compile_globs(globs).match_file(path)


@lru_cache(maxsize=256)
def _compile_globs(globs: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # imported here, because most runs have no patterns

    return GitIgnoreSpec.from_lines(glob[1:] if glob.startswith("./") else glob for glob in globs)

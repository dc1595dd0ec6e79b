"""Place and format imports with isort, as the project's own import sorter would do.

If the project sorts imports with ruff, the module translates ruff's settings to isort's settings. Without settings,
isort's profile for black applies.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chirp_migrate.plans.plan import Edit
from chirp_migrate.syntax.code_style import CodeStyle, read_ruff_settings

if TYPE_CHECKING:
    import isort

_SAME_IN_ISORT = (
    "case-sensitive",
    "combine-as-imports",
    "extra-standard-library",
    "force-single-line",
    "force-sort-within-sections",
    "force-to-top",
    "known-first-party",
    "known-local-folder",
    "known-third-party",
    "lines-between-types",
    "no-lines-before",
    "order-by-type",
    "single-line-exclusions",
)
#: Files that may name the tool with which a project sorts imports, and a pattern for the names of such tools.
_TOOLS = (".pre-commit-config.yaml", "pyproject.toml", "setup.cfg", "tox.ini", "noxfile.py", "Makefile")
_SORTS = re.compile(r"\b(isort|usort|ufmt)\b")
_SECTIONS = {
    "future": "FUTURE",
    "standard-library": "STDLIB",
    "third-party": "THIRDPARTY",
    "first-party": "FIRSTPARTY",
    "local-folder": "LOCALFOLDER",
}


@dataclass(frozen=True)
class ImportStyle:
    """How a project sorts imports.

    Attributes:
        root: folder of the project. Settings are read from this folder and the folders above it, up to the top of the
            git work tree. None means that no settings are read.
        is_vendored: whether ``root`` contains a copy of the runtime (``chirpid_patch``). If so, the copy counts as a
            package of the project.
    """

    root: Path | None = None
    is_vendored: bool = False

    def load(self) -> None:
        """Import isort and read the settings now, so that this work does not delay the first added import."""
        _ = self._read

    @property
    def config(self) -> isort.Config:
        """Return the project's settings for isort.

        Without such settings, return ruff's settings, translated to isort's options. Without ruff's settings, return
        isort's profile for black.
        """
        return self._read[0][0]

    @cached_property
    def is_configured(self) -> bool:
        """Return whether the project sorts imports.

        The result is True if the project has settings for isort, selects ruff's rule I001 (unsorted imports), or names
        a tool such as usort in a file such as ``.pre-commit-config.yaml``.
        """
        if self.root is None:
            return False
        if _has_settings(self.config):
            return True
        found = read_ruff_settings(self.root) if not self.problem else None
        table = found[1] if found is not None else {}
        chosen = [one.get(key, ()) for one in (table, table.get("lint", {})) for key in ("select", "extend-select")]
        lists = [codes for codes in chosen if isinstance(codes, list)]
        if any(code in ("ALL", "I", "I0", "I00", "I001") for codes in lists for code in codes):
            return True
        files = (self.root / name for name in _TOOLS)
        texts = (file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())
        return any(_SORTS.search(text) for text in texts)

    @property
    def problem(self) -> str:
        """Return why the project's settings for sorting imports cannot be used; "" if they can be used."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[list[isort.Config], str]:
        """Return the usable configurations for isort, and a message.

        The preferred configuration is the first item of the list. The message is the reason why a configuration of the
        project cannot be used; "" if all its configurations can be used.
        """
        import isort  # only commands that rewrite need isort, and importing isort takes a sixth of a second
        from isort.exceptions import ISortError

        if self.root is None:
            # Without these paths, isort would treat modules in the working directory as the project's own.
            nowhere = Path(os.devnull)
            return [isort.Config(profile="black", directory=str(nowhere), src_paths=(nowhere,))], ""
        plain, found, problem = _default_options(self.root), [], ""
        try:
            own = isort.Config(settings_path=str(self.root))
            found += [own] if _has_settings(own) else []
            ruff = _ruff_options(self.root)
            found += [isort.Config(**{**plain, **ruff})] if ruff else []
        except (ISortError, ValueError, TypeError, AttributeError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            problem = f"the settings for sorting imports cannot be used ({why})"
        found = found or [isort.Config(**plain)]
        if not self.is_vendored:
            return found, problem
        return [self._with_runtime(one) for one in found], problem

    def _with_runtime(self, config: isort.Config) -> isort.Config:
        """Return isort's settings ``config``, changed so that the runtime counts as a package of the project.

        If ``config.src_paths`` does not contain the root folder of the project, isort does not search this folder for
        the project's own packages. In this case, return ``config`` unchanged.
        """
        import isort

        if self.root not in config.src_paths:
            return config
        return isort.Config(config=config, known_first_party=frozenset({*config.known_first_party, "chirpid_patch"}))

    def insertions(self, imports: str, line: str) -> list[Edit] | None:
        """Return edits of ``imports`` that add ``line`` at the place that isort would choose.

        The result is None if ``imports`` are not in isort's order. A project may have settings for isort and for ruff.
        The function then uses the first of these settings with which ``imports`` are already sorted.

        Args:
            imports: text of consecutive import statements, including the last newline.
            line: text of another import statement.
        """
        newline = "\r\n" if "\r\n" in imports else "\n"
        before = imports.replace(newline, "\n")
        config = next((one for one in self._read[0] if _sort_imports(before, one) == before), None)
        if config is None:
            return None
        old, new = (text.splitlines(keepends=True) for text in (before, _sort_imports(f"{before}{line}\n", config)))
        starts = [0]
        for one in old:
            starts.append(starts[-1] + len(one) + len(newline) - 1)
        edits = []
        for kind, start, _, from_, to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind == "insert":
                edits.append(Edit(starts[start], starts[start], "".join(new[from_:to]).replace("\n", newline)))
            elif kind != "equal":
                return None
        return edits

    def format_import(self, line: str) -> str:
        """Return an import in the layout of isort: with sorted names, wrapped if too long, without a newline."""
        return _sort_imports(line, self.config).strip()

    def reformat_import(self, before: str, after: str) -> str:
        """Return the import ``after`` in isort's layout, if ``before`` is in this layout; else ``after`` unchanged."""
        newline = "\r\n" if "\r\n" in before else "\n"
        old, new = (text.replace(newline, "\n") for text in (before, after))
        for config in self._read[0]:
            if _sort_imports(old, config).strip() == old:
                return _sort_imports(new, config).strip().replace("\n", newline)
        return after

    def names_in_order(self, clauses: Sequence[str]) -> list[str]:
        """Return clauses of one import (``name`` or ``name as other``) in isort's order."""
        tree = ast.parse(_sort_imports(f"from module import {', '.join(clauses)}", self.config))
        return [ast.unparse(alias) for one in tree.body if isinstance(one, ast.ImportFrom) for alias in one.names]

    @property
    def one_name_a_line(self) -> bool:
        """Return whether the project's settings require a separate import statement for each name."""
        return bool(self.config.force_single_line)

    def section(self, module: str) -> str:
        """Return the name of isort's section for imports from ``module``."""
        import isort

        return isort.place_module(module, config=self.config)


def _has_settings(config: isort.Config) -> bool:
    """Return whether a file of the project has settings for isort; ``.editorconfig`` alone does not count."""
    files = (Path(str(source.get("source", ""))) for source in config.sources)
    return any(file.is_absolute() and file.name != ".editorconfig" for file in files)


def _sort_imports(imports: str, config: isort.Config) -> str:
    import isort

    return isort.code(imports, config=config)


def _default_options(root: Path) -> dict[str, Any]:
    plain = {"profile": "black", "directory": str(root), "src_paths": (root / "src", root)}
    length = CodeStyle(root).configured_length
    return plain if length is None else {**plain, "line_length": length}


def _ruff_options(root: Path) -> dict[str, Any]:
    """Return ruff's settings for ``root``, translated to options of isort; an empty dictionary without settings.

    Raises:
        ValueError: ruff's setting ``section-order`` lacks a section that isort needs.
    """
    found = read_ruff_settings(root)
    if found is None:
        return {}
    folder, table = found
    lint = table.get("lint", {})
    sorting: Mapping[str, Any] = {**table.get("isort", {}), **lint.get("isort", {})}
    options: dict[str, Any] = {name.replace("-", "_"): sorting[name] for name in _SAME_IN_ISORT if name in sorting}
    custom: Mapping[str, Any] = sorting.get("sections", {})
    options |= {f"known_{name}": modules for name, modules in custom.items()}
    order = sorting.get("section-order", [*_SECTIONS])
    if missing := [name for name in _SECTIONS if name not in order]:  # isort cannot sort imports of these sections
        raise ValueError(f"section-order lacks {', '.join(missing)}")
    options["sections"] = [_SECTIONS.get(name, name.upper()) for name in order]
    options["no_lines_before"] = [_SECTIONS.get(name, name.upper()) for name in options.get("no_lines_before", ())]
    # Ruff always treats the package of the importing module as the project's own package, even if the setting ``src``
    # does not name the folder of the package.
    packages = [file.parent.name for place in ("", "src") for file in (folder / place).glob("*/__init__.py")]
    options["known_first_party"] = [*options.get("known_first_party", ()), *packages]
    options["src_paths"] = tuple(folder / one for one in table.get("src", (".", "src")))
    options["line_length"] = table.get("line-length", 88)
    options["reverse_relative"] = sorting.get("relative-imports-order") == "closest-to-furthest"
    options["split_on_trailing_comma"] = sorting.get("split-on-trailing-comma", True)
    return options

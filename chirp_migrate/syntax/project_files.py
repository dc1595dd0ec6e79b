"""Store the texts of a project's files, and cache the results of analyses of the texts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, wraps
from itertools import chain
from typing import Any, Concatenate, ParamSpec, TypeVar

from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module, UnparsableModule
from chirp_migrate.syntax.word_index import WordIndex

_Files = TypeVar("_Files", bound="ProjectFiles")
_Answer = TypeVar("_Answer")
_Asked = ParamSpec("_Asked")

#: Largest total length, in code points, of the files whose trees are cached. A tree takes 300 bytes per code point.
_CODE_KEPT = 200_000
#: Largest number of cached answers about the whole project. An answer takes about 300 bytes.
_ANSWERS_KEPT = 60_000
_METADATA = re.compile(r"""(?m)^\[(?:project|tool\.poetry)\][ \t]*(?:#.*)?$""")


def answered_once(
    analysis: Callable[Concatenate[_Files, _Asked], _Answer],
) -> Callable[Concatenate[_Files, _Asked], _Answer]:
    """Make a function of a project, or a method of a project, cache its results until a text of the project changes.

    Callers pass further arguments by position. These arguments must be hashable.
    """

    @wraps(analysis)
    def answer(project: _Files, /, *asked: _Asked.args, **_: _Asked.kwargs) -> _Answer:
        known, key = project._answers, (analysis, asked)
        try:
            found: _Answer = known[key]
        except KeyError:
            found = analysis(project, *asked, **_)
            if len(known) >= _ANSWERS_KEPT:
                known.clear()
            known[key] = found
        return found

    return answer


class ProjectFiles:
    """The texts of a backend's modules, parsed on demand.

    Args:
        texts: decoded source by posix path relative to the root.
        notebooks: raw text of each notebook by path. A notebook that is not in ``texts`` is only searched for imports.
        name: dotted name of the root if the root is itself a package, else "".
        import_style: how the project sorts imports; None means isort's order without settings.
        code_style: how the project lays out code; None means that each file keeps its own layout.
        settings: texts of configuration files (YAML, JSON, TOML, INI, gin) and Cython sources by path. These texts are
            only searched for names.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        notebooks: Mapping[str, str] | None = None,
        name: str = "",
        import_style: ImportStyle | None = None,
        code_style: CodeStyle | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._texts = dict(texts)
        self._settings = dict(settings or {})
        self.import_style = import_style or ImportStyle()
        self.code_style = code_style or CodeStyle()
        self._raw_notebooks = dict(notebooks or {})
        self._notebooks = {path: text for path, text in self._raw_notebooks.items() if path not in texts}
        self._name = name
        self._modules: dict[str, Module | None] = {}  # recently used modules, the latest at the end
        self._in_work = ""
        self._first_answers: dict[object, Any] = {}  # answers about the project with its original texts
        self._answers = self._first_answers  # answers about the project with its current texts
        self._facts: dict[str, dict[object, Any]] = defaultdict(dict)  # facts about each file, until its text changes

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_answers": {}, "_first_answers": {}}

    @cached_property
    def _words(self) -> WordIndex:
        return WordIndex(self._texts)

    @cached_property
    def is_distributed(self) -> bool:
        """Return whether other projects may install this project, because it has metadata of a package.

        The metadata is ``setup.py``, or a section such as ``[project]`` of ``pyproject.toml``.
        """
        return "setup.py" in self._texts or self.settings_match(_METADATA)

    def text(self, path: str) -> str:
        """Return the current text of the file at ``path``."""
        return self._texts[path]

    def has_file(self, path: str) -> bool:
        """Return whether the backend has a readable file at ``path``."""
        return path in self._texts

    def paths_containing(self, *words: str) -> Iterator[str]:
        """Return the paths of the files in which one of ``words`` is a whole word."""
        return self._words.paths_containing(*words)

    def update(self, path: str, text: str) -> None:
        """Replace the text of one file. Later analyses of other modules use the new text."""
        words, before = self._words, self._texts[path]
        if before == text:
            return
        self._texts[path] = text
        self._drop_module(path)
        self._facts.pop(path, None)
        self._answers = {} if words.changed(path, before) else self._first_answers

    def _drop_module(self, path: str) -> None:
        module = self._modules.pop(path, None)
        if module is not None:
            module.drop_cache()

    def module(self, path: str, *, in_work: bool = False) -> Module:
        """Return the parsed module at ``path``.

        Args:
            path: path of a file of the backend.
            in_work: whether rules currently analyse this module. If so, the parsed module stays in memory until the
                next call with ``in_work``.

        Raises:
            UnparsableModule: the text is not Python.
        """
        self._in_work = path if in_work else self._in_work
        if path not in self._modules:
            self._modules[path] = None
            self._modules[path] = Module(path, self._texts[path])
            for one in [one for one in self._modules if one not in (path, self._in_work)]:
                if sum(len(self._texts[kept]) for kept in self._modules) <= _CODE_KEPT:
                    break
                self._drop_module(one)
        module = self._modules[path] = self._modules.pop(path)
        if module is None:
            raise UnparsableModule("the file could not be parsed before")
        return module

    @answered_once
    def search(self, pattern: str | re.Pattern[str], *words: str) -> bool:
        """Return whether a regular expression matches in any file of the backend.

        Args:
            pattern: the regular expression.
            words: whole words. Every match must contain at least one of the words, so the method searches only files
                with one of the words. Without words, the method searches all files.
        """
        return any(self.matching(re.compile(pattern), *words))

    def _fact(
        self, path: str, analysis: Callable[Concatenate[str, _Asked], _Answer], *asked: _Asked.args, **_: _Asked.kwargs
    ) -> _Answer:
        """Return the result of ``analysis`` for the text of a file or notebook, cached until the text changes."""
        known, key = self._facts[path], (analysis, asked)
        try:
            found: _Answer = known[key]
        except KeyError:
            text = self._texts[path] if path in self._texts else self._notebooks[path]
            found = known[key] = analysis(text, *asked, **_)
        return found

    def matching(self, pattern: re.Pattern[str], *words: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of every file in which a regular expression matches (see :meth:`search`)."""
        paths = self.paths_containing(*words) if words else iter(self._texts)
        return ((path, self._texts[path]) for path in paths if self._fact(path, _matches, pattern))

    def settings_match(self, pattern: re.Pattern[str]) -> bool:
        """Return whether a regular expression matches in a configuration file or Cython source of the backend."""
        return any(pattern.search(text) for text in self._settings.values())

    def _other_texts(self, besides: str, word: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of other files with ``word`` as a whole word, and of notebooks that contain ``word``."""
        paths = self.paths_containing(word) if word else iter(self._texts)
        held = ((path, self._texts[path]) for path in paths if path != besides)
        books = ((path, text) for path, text in self._notebooks.items() if path != besides and word in text)
        return chain(held, books)


def _matches(text: str, pattern: re.Pattern[str]) -> bool:
    return pattern.search(text) is not None

"""Hold the texts of a project: parse modules on demand, search all texts, and cache facts about them."""

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
from chirp_migrate.syntax.module_paths import ModulePaths
from chirp_migrate.syntax.word_index import WordIndex, words_of

_TEST = re.compile(r"(?:.*/)?(?:tests/.*|test_[^/]*|[^/]*_test|conftest)\.(?:py|ipynb)", re.DOTALL)
_Answer = TypeVar("_Answer")
_Asked = ParamSpec("_Asked")

#: Largest total length, in code points, of the files whose trees are cached. A tree takes 300 bytes per code point.
_CODE_KEPT = 200_000
#: Largest number of cached answers about the whole project. An answer takes about 300 bytes.
_ANSWERS_KEPT = 60_000

_METADATA = re.compile(r"""(?m)^\[(?:project|tool\.poetry)\][ \t]*(?:#.*)?$""")


def cached_until_text_changes(
    analysis: Callable[Concatenate[Project, _Asked], _Answer],
) -> Callable[Concatenate[Project, _Asked], _Answer]:
    """Decorate an analysis of a project, so that its results are cached until a text of the project changes.

    The analysis is a function or method with the project as first argument. Callers must pass further arguments by
    position, and these arguments must be hashable.
    """

    @wraps(analysis)
    def answer(project: Project, /, *asked: _Asked.args, **_: _Asked.kwargs) -> _Answer:
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


class Project:
    """The texts of a project's modules, parsed on demand.

    Args:
        texts: decoded source by posix path relative to the root.
        notebooks: raw text of each notebook by path. A notebook that is not in ``texts`` is not parsed. Its raw text is
            only searched, for example for imports.
        name: dotted name of the root if the root is itself a package, else "".
        import_style: how the project sorts imports; None means isort's order without settings.
        code_style: how the project lays out code; None means that each file keeps its own layout.
        settings: texts of configuration files (YAML, JSON, TOML, INI, gin) and Cython sources by path. These texts are
            only searched for names.

    Attributes:
        texts: current text of each file by path. Only :meth:`update` may change a text.
        raw_notebooks: the argument ``notebooks``.
        notebooks: the notebooks that are not in ``texts``.
        module_paths: the modules by the names that imports use for them.
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
        self.texts = dict(texts)
        self._settings = dict(settings or {})
        self.import_style = import_style or ImportStyle()
        self.code_style = code_style or CodeStyle()
        self.raw_notebooks = dict(notebooks or {})
        self.notebooks = {path: text for path, text in self.raw_notebooks.items() if path not in texts}
        self.module_paths = ModulePaths(self.texts, name)
        self._modules: dict[str, Module | None] = {}  # recently used modules, the latest at the end
        self._in_work = ""
        self._first_answers: dict[object, Any] = {}  # answers about the project with its first texts
        self._answers = self._first_answers  # answers about the project with its current texts
        self._facts: dict[str, dict[object, Any]] = defaultdict(dict)  # facts about each file, until its text changes

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_answers": {}, "_first_answers": {}}

    @cached_property
    def _words(self) -> WordIndex:
        return WordIndex(self.texts)

    @cached_property
    def is_distributed(self) -> bool:
        """Return whether other projects may install this project.

        The result is True if a file such as ``setup.py`` describes the project as a package.
        """
        return "setup.py" in self.texts or self.settings_match(_METADATA)

    def text(self, path: str) -> str:
        """Return the current text of the file at ``path``."""
        return self.texts[path]

    def paths_containing(self, *words: str) -> Iterator[str]:
        """Return the paths of the files in which one of ``words`` is a whole word."""
        return self._words.paths_containing(*words)

    def update(self, path: str, text: str) -> None:
        """Replace the text of one file. Later analyses of other modules use the new text."""
        words, before = self._words, self.texts[path]
        if before == text:
            return
        self.texts[path] = text
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
            path: path of a file of the project.
            in_work: whether rules analyse this module now. If so, the cache keeps the parsed module until the next call
                with ``in_work``, even if the cache is full.

        Raises:
            UnparsableModule: the text is not Python.
        """
        self._in_work = path if in_work else self._in_work
        if path not in self._modules:
            self._modules[path] = None
            self._modules[path] = Module(path, self.texts[path])
            for one in [one for one in self._modules if one not in (path, self._in_work)]:
                if sum(len(self.texts[kept]) for kept in self._modules) <= _CODE_KEPT:
                    break
                self._drop_module(one)
        module = self._modules[path] = self._modules.pop(path)
        if module is None:
            raise UnparsableModule("an earlier attempt to parse the module failed")
        return module

    def fact(
        self, path: str, analysis: Callable[Concatenate[str, _Asked], _Answer], *asked: _Asked.args, **_: _Asked.kwargs
    ) -> _Answer:
        """Return the result of ``analysis`` for the text of a file or notebook, cached until this text changes."""
        known, key = self._facts[path], (analysis, asked)
        try:
            found: _Answer = known[key]
        except KeyError:
            text = self.texts[path] if path in self.texts else self.notebooks[path]
            found = known[key] = analysis(text, *asked, **_)
        return found

    @cached_until_text_changes
    def search(self, pattern: str | re.Pattern[str], *words: str) -> bool:
        """Return whether a regular expression matches in any file of the project.

        Args:
            pattern: the regular expression.
            words: whole words. Every match must contain at least one of the words, because only files with one of the
                words are searched. Without words, all files are searched.
        """
        return any(self.matching(re.compile(pattern), *words))

    def matching(self, pattern: re.Pattern[str], *words: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of every file in which a regular expression matches (see :meth:`search`)."""
        paths = self.paths_containing(*words) if words else iter(self.texts)
        return ((path, self.texts[path]) for path in paths if self.fact(path, _matches, pattern))

    @cached_property
    def words_of_settings(self) -> frozenset[str]:
        """Return the whole words of all configuration files and Cython sources of the project."""
        return frozenset[str]().union(*map(words_of, self._settings.values()))

    def settings_match(self, pattern: re.Pattern[str]) -> bool:
        """Return whether a regular expression matches in a configuration file or Cython source of the project."""
        return any(pattern.search(text) for text in self._settings.values())

    def is_named_elsewhere(self, pattern: str, word: str, besides: str, *, settings: bool = False) -> bool:
        """Return whether a regular expression matches in a file or notebook other than ``besides``.

        Args:
            pattern: the regular expression.
            word: whole word that every match contains.
            besides: path of the file that is not searched.
            settings: whether to search configuration files and Cython sources, too.
        """
        searched = re.compile(pattern)
        return any(searched.search(text) for _, text in self.other_texts(besides, word)) or (
            settings and self.settings_match(searched)
        )

    def other_texts(self, besides: str, word: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of each file and notebook that contains ``word``, except for the file ``besides``.

        In a file, ``word`` must be a whole word. In a notebook, ``word`` may be a part of a longer word. An empty
        ``word`` yields all files and notebooks.
        """
        paths = self.paths_containing(word) if word else iter(self.texts)
        held = ((path, self.texts[path]) for path in paths if path != besides)
        books = ((path, text) for path, text in self.notebooks.items() if path != besides and word in text)
        return chain(held, books)


def is_test_file(path: str) -> bool:
    """Return whether a file belongs to the project's tests, by pytest's naming or by the folder ``tests``."""
    return _TEST.fullmatch(path) is not None


def _matches(text: str, pattern: re.Pattern[str]) -> bool:
    return pattern.search(text) is not None

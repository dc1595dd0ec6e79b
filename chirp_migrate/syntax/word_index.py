"""Index the words of a project's files, to find the files that contain a word."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache

_WORD = re.compile(r"\w+")
#: Translation table that replaces each ASCII character outside of words with a blank.
_BLANKS = {code: " " for code in range(128) if not _WORD.match(chr(code))}


class WordIndex:
    """An index of whole words, which finds the files that contain a word without a search of all files.

    Args:
        texts: text of each file by path. Code that changes a text must call :meth:`changed`.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._paths = list(texts)
        self._first: dict[str, str] = {}  # the original texts of files that have changed since the index was created
        self._places: dict[str, array[int]] = {}
        for number, text in enumerate(texts.values()):
            for word in _words(text):
                if (places := self._places.get(word)) is None:
                    places = self._places[word] = array("I")
                places.append(number)

    def changed(self, path: str, before: str) -> bool:
        """Update the index after a change of the text at ``path``; ``before`` is the text before the change.

        Returns:
            Whether the text of any file now differs from its text at the creation of the index.
        """
        if self._first.setdefault(path, before) == self._texts[path]:
            del self._first[path]
        return bool(self._first)

    def paths_containing(self, *words: str) -> Iterator[str]:
        """Return the paths of the files that contain one of ``words``, in the order of ``texts``.

        The index does not contain the new words of files that have changed since its creation. So the method searches
        the texts of these files. In these texts, parts of longer words count, too.
        """
        numbers = {number for word in words for number in self._places.get(word, ())}
        if self._first:
            changed = {number for number, path in enumerate(self._paths) if path in self._first}
            held = {number for number in changed if any(word in self._texts[self._paths[number]] for word in words)}
            numbers = numbers - changed | held
        return (self._paths[number] for number in sorted(numbers))


@lru_cache(maxsize=2)
def words_of(text: str) -> frozenset[str]:
    """Return the whole words of a text, cached, because many rules need them."""
    return frozenset(_words(text))


def _words(text: str) -> set[str]:
    return set(text.translate(_BLANKS).split() if text.isascii() else _WORD.findall(text))

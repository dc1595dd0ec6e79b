"""Look up classes of compiled extension modules in the project's Cython sources."""

from __future__ import annotations

import re

#: Suffix of Cython sources.
SOURCE = ".pyx"
_RUNTIME = "chirpid_patch"
_CLASS = re.compile(r"(?m)^(?:cdef[ \t]+)?class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?[ \t]*:")
_READER = re.compile(r"(?m)^[ \t]+(?:def|cpdef)\b[^(\n]*\b__getitem__[ \t]*\(")


def compiled_class_has_getitem(text: str, class_name: str) -> bool:
    """Return whether a compiled class has a ``__getitem__``, with which loaders read single samples.

    A method that the class inherits from another class in the same file also counts.

    Args:
        text: a Cython source.
        class_name: name of the class.
    """
    if _RUNTIME in text:
        return False
    classes = list(_CLASS.finditer(text))
    ends = [*(one.start() for one in classes[1:]), len(text)]
    bodies = {one[1]: (one[2] or "", text[one.end() : end]) for one, end in zip(classes, ends, strict=False)}
    seen: set[str] = set()
    while class_name in bodies and class_name not in seen:
        seen.add(class_name)
        bases, body = bodies[class_name]
        if _READER.search(body):
            return True
        class_name = bases.partition(",")[0].strip()
    return False

"""Build the new text of a file from its accepted hunks.

The module applies the edits of the hunks, adds the imports that the hunks need, and removes code that is dead
afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from chirp_migrate.edits.deadcode import remove_newly_unused_names
from chirp_migrate.edits.imports import import_edits, name_bound_by_import
from chirp_migrate.plans.plan import Hunk
from chirp_migrate.source.text import apply_edits
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module

_WORD = re.compile(r"\w+")


def text_with_hunks(
    module: Module, hunks: Iterable[Hunk], public_names: Collection[str], import_style: ImportStyle
) -> str:
    """Return the text of ``module`` after applying only the accepted ``hunks``.

    Args:
        module: the file before the edits.
        hunks: the accepted hunks, in the order of the file. The result does not depend on the refused hunks.
        public_names: top-level names that other files import from this file. The names stay, even if the file itself
            does not use the names.
        import_style: how the project sorts imports.

    Raises:
        UnparsableModule: the file cannot be parsed.
        SyntaxError: the new text cannot be parsed. Only a hunk that the user edited can cause this error.
    """
    accepted = tuple(hunks)
    # Two rewrites may contain the same edit, such as an edit that adds an import next to a statement.
    edits = list(dict.fromkeys(edit for hunk in accepted for edit in hunk.edits))
    if not edits:
        return module.text
    words = set(_WORD.findall(apply_edits(module.text, edits)))
    # If the user has edited a hunk, the hunk may no longer use an import.
    needed = {one for hunk in accepted for one in hunk.imports if name_bound_by_import(one[1]) in words}
    first_use = min(edit.start for edit in edits)
    text = apply_edits(module.text, [*import_edits(module, needed, import_style, first_use), *edits])
    for dead in remove_newly_unused_names(module.text, text, public_names.__contains__, import_style):
        text = apply_edits(text, dead)
    return text

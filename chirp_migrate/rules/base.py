"""The base class of rules: a rule reads one module and suggests edits; it never writes or prints."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from chirp_migrate.plans.plan import Edit, Gain, Import, Safety
from chirp_migrate.syntax.queries import one_line
from chirp_migrate.syntax.word_index import words_of

if TYPE_CHECKING:
    import libcst as cst

    from chirp_migrate.syntax.module import Module
    from chirp_migrate.syntax.outline import Outline
    from chirp_migrate.syntax.project import Project


SEE_IT = "Run `doctor` to see it"
"""Ends the message of advice on a problem that a training run shows."""


@dataclass(frozen=True)
class Proposal:
    """One thing a rule found in a module.

    Attributes:
        offset: where in the text (code points) the finding is shown.
        message: what was found and what is done about it, or why it is not rewritten, in words a user can act on.
        edits: replacements in the text; none means "reported, not rewritten".
        imports: what the replacement needs imported.
        fine: nothing is wanting here; the place is only counted (see ``Rule.counts_sites``).
        why: short machine-readable reason, such as ``used-as-value``, by which reports are counted.
        by_default: whether it is applied without ``--unsafe`` although its rule changes behaviour.
        gain: what the edits buy; edits that buy nothing are made only if all loaders are to be rewritten.
        together: file and line, as read, of the calls that build loaders with whose rewrites it stands or falls.
    """

    offset: int
    message: str
    edits: tuple[Edit, ...] = ()
    imports: frozenset[Import] = frozenset()
    fine: bool = False
    why: str = ""
    by_default: bool = False
    gain: Gain | None = None
    together: frozenset[tuple[str, int]] = frozenset()


#: What a text has to have: a word, a match of a pattern, or what a test says.
Sign = str | re.Pattern[str] | Callable[[str], bool]


def _has(text: str, sign: Sign) -> bool:
    match sign:
        case str():
            return sign in text
        case re.Pattern():
            return sign.search(text) is not None
    return sign(text)


def listed(parts: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def quoted(module: Module, *nodes: cst.CSTNode) -> str:
    """Return the source of nodes, each on one line, for a message; equal texts once."""
    return listed(list(dict.fromkeys(f"`{one_line(module, node)}`" for node in nodes)))


class Rule(ABC):
    """A codemod rule. A subclass in a module of :mod:`chirp_migrate.rules` registers itself by existing.

    Attributes:
        code: stable identifier, ``CHP`` and three digits.
        name: short kebab-case name.
        reason: one paragraph: why the rewritten code is better.
        safety: what applying the rule means for the training (see :class:`~chirp_migrate.plans.plan.Safety`).
        trigger: words of which at least one occurs in any text this rule can have something to say about.
        beside: what such a text has to have, too: each a word, a pattern that matches somewhere, or a test of the text.
        in_place: whether it rewrites expressions where they stand, and moves, makes and changes no definitions.
        follows: codes of the rules that rewrite in place and may give this one something to say of a module of which
            it had nothing to say before; ``None``: any may.
        counts_sites: whether every proposal stands for one place that has to be accounted for (a loader), so that
            the ledger of a run counts it.
        finds_bugs: whether what it finds makes results wrong or runs fail: a warning where findings have levels, and
            named first; anything else is a note.
        stops_workers: whether what it only lists keeps workers from starting where they are not forked: it is said
            without ``--verbose``, and `check` does not call such code clean.
        verbose_only: whether what it only lists or proposes is said with ``--verbose`` and in reports alone.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    reason: ClassVar[str]
    safety: ClassVar[Safety]
    trigger: ClassVar[tuple[str, ...]]
    beside: ClassVar[tuple[Sign, ...]] = ()
    in_place: ClassVar[bool] = False
    follows: ClassVar[frozenset[str] | None] = None
    counts_sites: ClassVar[bool] = False
    finds_bugs: ClassVar[bool] = False
    stops_workers: ClassVar[bool] = False
    verbose_only: ClassVar[bool] = False

    @property
    def summary(self) -> str:
        """Return the summary of the rule: the first line of its module's docstring (or of its reason)."""
        docstring = inspect.getdoc(inspect.getmodule(type(self)))
        line = (docstring or self.reason).partition("\n")[0]
        text = re.sub(rf"^{self.code}: |\s*\(R-[^)]*\)", "", line)
        return (text[:1].upper() + text[1:]).replace("``", "`")

    @property
    def requires(self) -> str:
        """Return the conditions of a rewrite, as Markdown: the docstring of the class; "" without one."""
        return inspect.cleandoc(vars(type(self)).get("__doc__") or "").replace("``", "`")

    def names(self, project: Project) -> Set[str]:
        """Whole words that a text may have in place of those in ``trigger``, by what ``project`` calls them."""
        return frozenset()

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the rule may find something in a module with this text; other modules are not parsed."""
        named = any(word in text for word in self.trigger) or not words_of(text).isdisjoint(self.names(project))
        return named and all(_has(text, sign) for sign in self.beside)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether the rule may find something in a module, by its ``ast``.

        It is asked of modules with the words that the rule looks for (:meth:`concerns`), before LibCST reads them.
        """
        return True

    def may_have_more(self, outline: Outline, project: Project) -> bool:
        """Return the same of a module that has been rewritten."""
        return self.may_find(outline, project)

    def may_follow(self, module: Module, project: Project, rewriters: frozenset[str]) -> bool:
        """Whether the rule may have something to say after rewrites of a module of which it has nothing to say now.

        Args:
            module: as it is before.
            project: the backend it belongs to.
            rewriters: codes of the rules that rewrite it, all of them in place.
        """
        return self.follows is None or not self.follows.isdisjoint(rewriters)

    @abstractmethod
    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Propose edits and findings for ``module``."""

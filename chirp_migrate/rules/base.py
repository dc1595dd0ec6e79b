"""The base class of rules. A rule reads one module and returns edits; it never writes or prints."""

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
    """A place that a rule found in a module, with its edits.

    Attributes:
        offset: offset in the text, in code points, at which reports show the finding.
        message: what is wrong and what the rewrite does, or why it is not rewritten and what the user can do.
        edits: replacements in the text; none means "reported, not rewritten".
        imports: the imports that the replacement needs.
        fine: whether nothing is wrong at the place, which is then only counted (see ``Rule.counts_sites``).
        why: short machine-readable reason, such as ``used-as-value``, by which reports count findings.
        by_default: whether the edits are applied without ``--unsafe`` although the rule changes behaviour.
        gain: the gain of the edits. Edits without a gain are applied only if all loaders are to be rewritten.
        together: original file and line of the calls that build loaders whose rewrites are accepted or refused together
            with this one.
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


#: Condition for a text: a word in it, a match of a pattern, or a test.
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
    """A codemod rule. Every subclass in a module of :mod:`chirp_migrate.rules` is registered automatically.

    Attributes:
        code: stable identifier, ``CHP`` and three digits.
        name: short kebab-case name.
        reason: one paragraph: why the rewritten code is better.
        safety: what applying the rule means for the training (see :class:`~chirp_migrate.plans.plan.Safety`).
        trigger: words; the rule can only find something in a text that contains at least one of them.
        beside: further conditions that such a text must meet: a word, a pattern that matches somewhere, or a test of
            the text.
        in_place: whether it only rewrites expressions at their place, and neither moves, creates nor changes
            definitions.
        follows: codes of the rules that rewrite in place and after whose rewrites this rule may find something in a
            module in which it found nothing before; ``None``: any rule.
        counts_sites: whether each finding of the rule is one loader, and the ledger of a run counts these findings.
        finds_bugs: whether its findings make results wrong or runs fail. Such a finding is a warning in formats with
            levels, and comes first; any other finding is a note.
        stops_workers: whether findings without a rewrite keep workers from starting without fork. Such findings are
            printed without ``--verbose``, and `check` does not report such code as clean.
        verbose_only: whether advice and suggestions are only printed with ``--verbose`` and in reports.
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
        """Return whole words, such as aliases in ``project``, that a text may contain in place of ``trigger``."""
        return frozenset()

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the rule may find something in a module with this text; other modules are not parsed."""
        named = any(word in text for word in self.trigger) or not words_of(text).isdisjoint(self.names(project))
        return named and all(_has(text, sign) for sign in self.beside)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether the rule may find something in a module, by its ``ast``.

        It is called for modules that contain the words of the rule (:meth:`concerns`), before LibCST parses them.
        """
        return True

    def may_have_more(self, outline: Outline, project: Project) -> bool:
        """Return the result of :meth:`may_find` for a module that has been rewritten."""
        return self.may_find(outline, project)

    def may_follow(self, module: Module, project: Project, rewriters: frozenset[str]) -> bool:
        """Return whether the rule, which finds nothing now, may find something after rewrites of a module.

        Args:
            module: the module before the rewrites.
            project: the backend of the module.
            rewriters: codes of the rules that rewrite it, which all rewrite in place.
        """
        return self.follows is None or not self.follows.isdisjoint(rewriters)

    @abstractmethod
    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Yield the findings in ``module``, with their edits."""

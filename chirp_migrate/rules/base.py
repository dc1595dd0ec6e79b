"""The base class of rules. A rule reads one module and returns edits. A rule writes no files and prints nothing."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from chirp_migrate.plans.plan import Edit, Gain, Import, Safety
from chirp_migrate.syntax.queries import one_line_source
from chirp_migrate.syntax.word_index import words_of

if TYPE_CHECKING:
    import libcst as cst

    from chirp_migrate.syntax.module import Module
    from chirp_migrate.syntax.outline import Outline
    from chirp_migrate.syntax.project import Project


SEE_IT = "`doctor` shows the fault"
"""Last sentence of messages about problems whose effect on a training run `doctor` can observe."""


@dataclass(frozen=True)
class RuleMatch:
    """A problem that a rule found at one place in a module, and the edits that rewrite this place.

    Attributes:
        offset: the place of the problem, as the number of characters of the source text in front of this place.
        message: what is wrong and what the rewrite does, or why the code is not rewritten and what the user can do.
        edits: replacements in the source text; an empty tuple if the rule reports the problem but does not rewrite the
            code.
        imports: the imports that ``apply`` must add to the module, because the edits use the imported names.
        fine: True if the code at the place is correct and needs no rewrite. Reports only count such places, and do not
            list them (see ``Rule.counts_sites``).
        why: short machine-readable reason, such as ``used-as-value``; reports count the findings with each reason.
        by_default: whether ``apply`` makes the edits even without ``--unsafe``. This attribute matters only for rules
            that change what training learns, because the edits of all other rules need no ``--unsafe``.
        gain: what the rewrite of a loader improves; None if the rule estimates no gain. A rewrite with a gain of kind
            ``GainKind.NOTHING`` is applied only with ``--all-loaders``.
        together: calls that build loaders, whose rewrites a review accepts or refuses together with this rewrite. Each
            call is a pair: path of the file, and line number in the original file.
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


#: A condition on a source text: a word that the text must contain, a pattern that must match in the text, or a function
#: that must return True for the text.
TextCondition = str | re.Pattern[str] | Callable[[str], bool]


def _meets_condition(text: str, sign: TextCondition) -> bool:
    match sign:
        case str():
            return sign in text
        case re.Pattern():
            return sign.search(text) is not None
    return sign(text)


def join_texts(parts: Sequence[str]) -> str:
    """Join texts to a list for a message, such as ``a and b`` or ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def quote_sources(module: Module, *nodes: cst.CSTNode) -> str:
    """Return the source code of nodes as a list for a message, such as `a.x` and `b`.

    If several nodes have the same code, the list contains this code only once.
    """
    return join_texts(list(dict.fromkeys(f"`{one_line_source(module, node)}`" for node in nodes)))


class Rule(ABC):
    """A codemod rule. :func:`chirp_migrate.rules.all_rules` finds every subclass in a module ``chp….py``.

    Attributes:
        code: stable identifier, ``CHP`` and three digits.
        name: short kebab-case name.
        reason: one paragraph that explains why the rewritten code is better.
        safety: how a rewrite by this rule affects the training (see :class:`~chirp_migrate.plans.plan.Safety`).
        trigger: words, such as ``DataLoader``, that select the source texts to check. The rule skips a source text that
            contains none of these words and none of the words that :meth:`names` returns.
        beside: conditions that a source text must meet in addition to ``trigger``: words, patterns or functions (see
            ``TextCondition``). The rule skips a source text that fails one of these conditions.
        in_place: whether the rule only replaces expressions, and leaves all class and function definitions unchanged.
            After a rewrite by a rule whose value is False, all rules check the module again.
        follows: codes of other rules whose rewrites can create code that this rule finds; ``None`` stands for all
            rules. The rule checks a module again after rewrites by these rules.
        counts_sites: whether each finding of the rule stands for one loader. Reports count the findings of such a rule
            in the ledger, which lists how many loaders of the project are migrated, unchanged and so on.
        finds_bugs: whether the code that the rule finds makes results wrong or runs fail. Reports list the findings of
            such rules first. In report formats with levels, these findings are warnings, and all other findings are
            notes.
        stops_workers: whether the code that the rule finds makes workers fail with every start method except ``fork``.
            Findings of such a rule are printed even without ``--verbose``. The command ``check`` does not print
            ``Clean`` if the code has such a finding.
        verbose_only: whether the terminal lists the findings of the rule that are not rewritten only with
            ``--verbose``. If no loader of the project gains from a rewrite, the terminal lists advice even without
            ``--verbose``. All other reports, such as JSON, always contain these findings.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    reason: ClassVar[str]
    safety: ClassVar[Safety]
    trigger: ClassVar[tuple[str, ...]]
    beside: ClassVar[tuple[TextCondition, ...]] = ()
    in_place: ClassVar[bool] = False
    follows: ClassVar[frozenset[str] | None] = None
    counts_sites: ClassVar[bool] = False
    finds_bugs: ClassVar[bool] = False
    stops_workers: ClassVar[bool] = False
    verbose_only: ClassVar[bool] = False

    @property
    def summary(self) -> str:
        """Return the summary of the rule: the first line of its module's docstring.

        If the module has no docstring, the result is the first line of ``reason``.
        """
        docstring = inspect.getdoc(inspect.getmodule(type(self)))
        line = (docstring or self.reason).partition("\n")[0]
        text = re.sub(rf"^{self.code}: |\s*\(R-[^)]*\)", "", line)
        return (text[:1].upper() + text[1:]).replace("``", "`")

    @property
    def requires(self) -> str:
        """Return the conditions for a rewrite as Markdown: the docstring of the class, or "" without a docstring."""
        return inspect.cleandoc(vars(type(self)).get("__doc__") or "").replace("``", "`")

    def names(self, project: Project) -> Set[str]:
        """Return words to search for in addition to ``trigger``, such as aliases of a class that the project imports.

        A word of the result must occur in the source text as a whole word. In contrast, a word of ``trigger`` may be a
        part of a longer word in the source text, as ``ataset`` is a part of ``Dataset``.
        """
        return frozenset()

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the rule may find something in a module, judged from its source text.

        The tool parses a module only if at least one rule may find something in the module.
        """
        named = any(word in text for word in self.trigger) or not words_of(text).isdisjoint(self.names(project))
        return named and all(_meets_condition(text, sign) for sign in self.beside)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether the rule may find something in a module, judged from its ``ast`` tree.

        The tool calls this method only for modules for which :meth:`concerns` returns True. LibCST is much slower than
        ``ast``, so LibCST parses a module only if a rule may find something in the module.
        """
        return True

    def may_have_more(self, outline: Outline, project: Project) -> bool:
        """Return whether the rule may find something in a module that has been rewritten (see :meth:`may_find`)."""
        return self.may_find(outline, project)

    def may_follow(self, module: Module, project: Project, rewriters: frozenset[str]) -> bool:
        """Return whether rewrites by other rules may create the first finding of this rule in a module.

        Args:
            module: the module before the rewrites.
            project: the project that contains the module.
            rewriters: codes of the rules that rewrite the module; all of these rules have ``in_place`` set.
        """
        return self.follows is None or not self.follows.isdisjoint(rewriters)

    @abstractmethod
    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Yield the findings of the rule in ``module``, with their edits."""

"""Find all rules: :func:`all_rules` creates one object of each rule class in the modules ``chp….py``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

from chirp_migrate.rules.base import Rule, RuleMatch

__all__ = ["Rule", "RuleMatch", "all_rules", "codes_matching", "selected_codes", "unknown_rule_message"]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return one instance of every rule, sorted by code.

    Raises:
        ValueError: two rules have the same code.
    """
    rules: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("chp"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        for member in vars(module).values():
            # In Python 3.10, isinstance(tuple[str], type) is true, but issubclass(tuple[str], Rule) raises an error.
            kind = isinstance(member, type) and issubclass(type(member), type)
            if kind and issubclass(member, Rule) and member.__module__ == module.__name__:
                if member.code in rules:
                    raise ValueError(f"two rules have the code {member.code}")
                rules[member.code] = member()
    return tuple(rules[code] for code in sorted(rules))


def codes_matching(selector: str) -> frozenset[str]:
    """Return the codes of the rules that match a selector: a code, a prefix of codes (``CHP01``), a name, or ``ALL``.

    The result is empty if no rule matches. The selector may be in upper or lower case.
    """
    wanted = selector.upper()
    return frozenset(
        rule.code
        for rule in all_rules()
        if wanted in ("ALL", rule.name.upper()) or (wanted.startswith("CHP") and rule.code.startswith(wanted))
    )


def unknown_rule_message(selector: str) -> str:
    """Return the error message for a selector that matches no rule.

    If a rule has a similar code or name, the message suggests this rule.
    """
    names = {name.upper(): rule for rule in all_rules() for name in (rule.code, rule.name)}
    near = get_close_matches(selector.upper(), names, n=1)
    nearest = f"the nearest is {names[near[0]].code} ({names[near[0]].name}); " if near else ""
    return f"there is no rule {selector!r}; {nearest}`chirp-migrate rules` lists all rules"


def selected_codes(select: Iterable[str], ignore: Iterable[str]) -> frozenset[str]:
    """Return the codes of the rules to run, from the selectors of ``select`` and ``ignore``.

    If selectors of both lists match a rule, the more specific selector decides, as in ruff. For example, ``select
    CHP011, ignore CHP01`` runs CHP011. If both selectors are equally specific, the rule does not run.
    """
    wanted, unwanted = _specificity_by_code(select), _specificity_by_code(ignore)
    return frozenset(code for code, weight in wanted.items() if weight > unwanted.get(code, -1))


def _specificity_by_code(selectors: Iterable[str]) -> dict[str, int]:
    """Return a dictionary: code of each rule that a selector matches → specificity of the match.

    The specificity of a code or of a prefix of codes is its number of characters: 6 for ``CHP011``, and 5 for
    ``CHP01``. A name has the same specificity as the code of its rule, and ``ALL`` has the specificity 0. If several
    selectors match a rule, the most specific selector counts.
    """
    weights: dict[str, int] = {}
    for selector in selectors:
        for code in codes_matching(selector):
            beginning = code.startswith(selector.upper())
            weight = len(selector) if beginning else 0 if selector.upper() == "ALL" else len(code)
            weights[code] = max(weights.get(code, 0), weight)
    return weights

"""The rules, one module each; a new module with a :class:`~chirp_migrate.rules.base.Rule` registers itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

from chirp_migrate.rules.base import Proposal, Rule

__all__ = ["Proposal", "Rule", "all_rules", "codes_of", "selected_codes", "unknown_rule"]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return one instance of every rule, by code.

    Raises:
        ValueError: two rules have the same code.
    """
    rules: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("chp"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        for member in vars(module).values():
            # On Python 3.10 an alias such as tuple[str] passes for a type.
            kind = isinstance(member, type) and issubclass(type(member), type)
            if kind and issubclass(member, Rule) and member.__module__ == module.__name__:
                if member.code in rules:
                    raise ValueError(f"two rules have the code {member.code}")
                rules[member.code] = member()
    return tuple(rules[code] for code in sorted(rules))


def codes_of(selector: str) -> frozenset[str]:
    """Return the codes of the rules of a selector: a code, a prefix of codes (``CHP01``), a name, or ``ALL``.

    The result is empty if there is no such rule. Upper and lower case are equal.
    """
    wanted = selector.upper()
    return frozenset(
        rule.code
        for rule in all_rules()
        if wanted in ("ALL", rule.name.upper()) or (wanted.startswith("CHP") and rule.code.startswith(wanted))
    )


def unknown_rule(selector: str) -> str:
    """Return the message for a selector without a rule: half a sentence that names the nearest rule."""
    names = {name.upper(): rule for rule in all_rules() for name in (rule.code, rule.name)}
    near = get_close_matches(selector.upper(), names, n=1)
    nearest = f"the nearest is {names[near[0]].code} ({names[near[0]].name}), " if near else ""
    return f"there is no rule {selector!r}; {nearest}`chirp-migrate rules` lists them"


def selected_codes(select: Iterable[str], ignore: Iterable[str]) -> frozenset[str]:
    """Return the codes that are selected and not ignored; the more specific selector decides, as in ruff.

    ``select CHP011, ignore CHP01`` selects CHP011. Between equals, ``ignore`` wins.
    """
    wanted, unwanted = _weights(select), _weights(ignore)
    return frozenset(code for code, weight in wanted.items() if weight > unwanted.get(code, -1))


def _weights(selectors: Iterable[str]) -> dict[str, int]:
    """Return how specific the most specific selector of each matching rule is."""
    weights: dict[str, int] = {}
    for selector in selectors:
        for code in codes_of(selector):
            beginning = code.startswith(selector.upper())
            weight = len(selector) if beginning else 0 if selector.upper() == "ALL" else len(code)
            weights[code] = max(weights.get(code, 0), weight)
    return weights

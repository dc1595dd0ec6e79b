"""The rules, one module each; a new module with a :class:`~chirp_migrate.rules.base.Rule` in it is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from chirp_migrate.rules.base import Proposal, Rule

__all__ = ["Proposal", "Rule", "all_rules"]


@cache
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule, by code.

    Raises:
        ValueError: when two rules share a code.
    """
    rules: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("chp"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        for member in vars(module).values():
            if isinstance(member, type) and issubclass(member, Rule) and member.__module__ == module.__name__:
                if member.code in rules:
                    raise ValueError(f"two rules have the code {member.code}")
                rules[member.code] = member()
    return tuple(rules[code] for code in sorted(rules))

"""Define a LibCST command for each rule, as in ``python -m libcst.tool codemod rules.CHP007 backend/``.

The module creates the commands from the list of rules, so a new rule gets a command automatically.
"""

from __future__ import annotations

import sys

from chirp_migrate.libcst_codemods import backend_plan, migrate
from chirp_migrate.plans.plan import Safety
from chirp_migrate.rules import Rule, all_rules

_SAFETY_NOTES = {
    Safety.SAFE: "",
    Safety.BEHAVIOUR: " The rule rewrites code only with unsafe = true in [tool.chirp-migrate].",
    Safety.ADVICE: " The rule only warns, and rewrites nothing.",
}


def _add_command(rule: Rule) -> None:
    class Plan(backend_plan.PlannedChangesProvider):
        codes = (rule.code,)

    class Command(migrate.PlanApplyingCommand):
        DESCRIPTION = f"{rule.name}: {rule.summary}{_SAFETY_NOTES[rule.safety]}"
        METADATA_DEPENDENCIES = (Plan,)

    for name, made in ((f"{rule.code}Plan", Plan), (rule.code, Command)):
        made.__name__ = made.__qualname__ = name  # LibCST pickles both classes, which stores their names
        setattr(sys.modules[__name__], name, made)


for _rule in all_rules():
    _add_command(_rule)

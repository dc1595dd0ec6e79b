"""Check whether CHP006, CHP007 or CHP012 moves a lambda, function or class to module level, where workers find it."""

from __future__ import annotations

from chirp_migrate.analysis.objects.abstract_objects import CreationPlace
from chirp_migrate.analysis.objects.pickled import find_unpicklable_objects
from chirp_migrate.rules.api import Module, Project
from chirp_migrate.rules.chp006_local_dataset_class import LocalDatasetClass
from chirp_migrate.rules.chp007_lambda import PicklableFunction
from chirp_migrate.rules.chp012_local_function import LocalFunction


def is_moved_by_rule(project: Project, place: CreationPlace) -> bool:
    """Return whether CHP006, CHP007 or CHP012 moves the lambda, local function or local class at a place.

    The result is also True if the rule has already moved the code.
    """
    module = project.module(place.path)
    unmoved = module.once(_unmoved_lines, project)
    remaining = find_unpicklable_objects(project).remaining_nodes(module, [place.node])
    return all(module.position(offset)[0] not in unmoved for offset, _ in remaining)


def _unmoved_lines(module: Module, project: Project) -> frozenset[int]:
    """Return the line numbers of the findings that CHP006, CHP007 and CHP012 do not rewrite."""
    rules = LocalDatasetClass(), PicklableFunction(), LocalFunction()
    found = (one for rule in rules for one in rule.check(module, project))
    return frozenset(module.position(one.offset)[0] for one in found if not one.edits)

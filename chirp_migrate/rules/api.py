"""The classes and functions that most rules need, so that a rule imports them from one module.

They read the syntax tree and the names of a module, query its project, and build edits and findings.
"""

from __future__ import annotations

from chirp_migrate.analysis.known_names import (
    DATASET,
    DATASET_WORDS,
    FACTORY,
    FACTORY_FUNCTIONS,
    FACTORY_METHOD,
    LOADER,
    NN_MODULE,
    PROGRESS,
    TORCH_DATASET,
    TORCH_LOADER,
    bases_may_match,
    dataset_names,
    inherits_from,
    is_call_of,
    may_name_dataset,
    resolves_to,
)
from chirp_migrate.edits.call_arguments import CallEdit
from chirp_migrate.edits.imports import runtime
from chirp_migrate.plans.plan import Edit, Gain, GainKind, Safety
from chirp_migrate.rules.base import SEE_IT, Proposal, Rule, join_texts, quote_sources
from chirp_migrate.syntax.gaps import CALL, GAP, LINE, TO_STRING_OF_SETATTR
from chirp_migrate.syntax.module import Module, find_in, walk
from chirp_migrate.syntax.outline import Outline, functions_of, last_name
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    Mention,
    argument,
    dotted,
    find_own,
    holds,
    is_in_string,
    is_integer,
    is_name,
    is_on_self,
    is_read,
    keywords,
    mention,
    method_called,
    methods_of,
    one_line,
    own_nodes,
    parameters,
    plain_source,
    target_of,
)

__all__ = [
    "CALL",
    "DATASET",
    "DATASET_WORDS",
    "FACTORY",
    "FACTORY_FUNCTIONS",
    "FACTORY_METHOD",
    "GAP",
    "LINE",
    "LOADER",
    "NN_MODULE",
    "PROGRESS",
    "SEE_IT",
    "TORCH_DATASET",
    "TORCH_LOADER",
    "TO_STRING_OF_SETATTR",
    "CallEdit",
    "Edit",
    "Gain",
    "GainKind",
    "Mention",
    "Module",
    "Outline",
    "Project",
    "Proposal",
    "Rule",
    "Safety",
    "argument",
    "bases_may_match",
    "dataset_names",
    "dotted",
    "find_in",
    "find_own",
    "functions_of",
    "holds",
    "inherits_from",
    "is_call_of",
    "is_in_string",
    "is_integer",
    "is_name",
    "is_on_self",
    "is_read",
    "join_texts",
    "keywords",
    "last_name",
    "may_name_dataset",
    "mention",
    "method_called",
    "methods_of",
    "one_line",
    "own_nodes",
    "parameters",
    "plain_source",
    "quote_sources",
    "resolves_to",
    "runtime",
    "target_of",
    "walk",
]

"""Re-export the classes and functions that most rules need, so that each rule imports them from one module.

These functions read syntax trees and names, search the project, and build edits and findings.
"""

from __future__ import annotations

from chirp_migrate.analysis.known_names import (
    DATASET,
    DATASET_WORDS,
    FACTORY,
    FACTORY_FUNCTIONS,
    FACTORY_METHOD,
    NN_MODULE,
    TORCH_DATASET,
    TORCH_LOADER,
    bases_may_match,
    dataset_class_names,
    inherits_from,
    is_call_of,
    may_name_dataset,
    resolves_to,
)
from chirp_migrate.edits.call_arguments import CallEdit
from chirp_migrate.edits.imports import runtime_import
from chirp_migrate.plans.plan import Edit, Gain, GainKind, Safety
from chirp_migrate.rules.base import SEE_IT, Rule, RuleMatch, join_texts, quote_sources
from chirp_migrate.syntax.gap_patterns import CALL, GAP, LINE
from chirp_migrate.syntax.module import Module, find_nodes
from chirp_migrate.syntax.name_resolution import (
    find_base_classes,
    find_class,
    find_function,
    resolve_ast_node,
    resolve_node,
)
from chirp_migrate.syntax.name_uses import find_aliases, is_class_patched, is_patched
from chirp_migrate.syntax.outline import Outline, methods_of_class, passed_values
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    bound_target,
    call_argument,
    called_method_name,
    contains_node,
    dotted_source,
    find_nodes_in_scope,
    function_parameters,
    is_in_fstring,
    is_integer,
    is_name,
    is_read,
    is_self_attribute,
    keyword_arguments,
    methods_of,
    nodes_in_scope,
    one_line_source,
)

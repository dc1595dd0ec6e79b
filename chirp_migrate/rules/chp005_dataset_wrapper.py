"""CHP005: replace classes of augmenting datasets that ``type(...)`` creates from lambdas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_reads import has_dynamic_attribute_read, has_guarded_attribute_read
from chirp_migrate.analysis.dataflow.attribute_writes import may_be_assigned_outside_class
from chirp_migrate.analysis.dataflow.capture_timing import why_captured_values_change
from chirp_migrate.analysis.dataflow.closures import CapturedName
from chirp_migrate.analysis.dataflow.constructions import constructor_calls
from chirp_migrate.analysis.dataflow.lifetimes import may_be_deep_copied
from chirp_migrate.analysis.dataflow.symbolic import Name
from chirp_migrate.analysis.datasets.dataset_expressions import only_base_is_torch_dataset
from chirp_migrate.analysis.datasets.dataset_meaning import AugmentedSamples
from chirp_migrate.analysis.datasets.type_members import match_dataset_type_call
from chirp_migrate.edits.statements import can_delete_lines_of, delete_lines_of_statement
from chirp_migrate.rules.api import (
    CALL,
    Edit,
    Module,
    Project,
    Rule,
    RuleMatch,
    Safety,
    find_aliases,
    function_parameters,
    is_name,
    runtime_import,
)

_REPLACEMENT = "WorkerSafeAugmentedDataset"
#: Attributes of the new class that objects of the replaced class do not have.
_ATTRIBUTES = ("dataset", "training", "transforms")
_ADDS = "the dataset gets attributes `dataset`, `training` and `transforms`"


class DatasetWrapper(Rule):
    """Rewrites a class ``type("Name", (Dataset,), {...})`` only if all these conditions hold:

    - `plain-type`: the names ``type`` and ``len`` refer to Python's own functions. The first argument of ``type`` is a
      string, and PyTorch's ``Dataset`` is the only base.
    - `inside-function`: the call of ``type`` is in a function, not in the body of a class.
    - `called-without-arguments`: the code only calls the class, without arguments. If the code assigns the class to a
      name, the name refers to the class on every path to these calls. No other code uses the name. The assignment is
      alone on its line, and its block contains other statements, so that the rule can remove the line.
    - `known-members`: the members are ``__getitem__``, ``__len__`` and optionally an ``__init__`` that does nothing.
      All members are lambdas without defaults.
    - `length-of-dataset`: the method ``__len__`` returns ``len(dataset)`` for the dataset that ``__getitem__`` reads.
    - `known-samples`: each sample is the pair (x, y) in ``dataset[index]``. The code applies one or more transforms to
      x, and applies no transform twice. A flag called ``training``, ``train`` or ``is_training`` may switch all
      transforms on or off.
    - `plain-switches`: the code applies each transform without a condition, or only if the transform is not None. If
      the code applies a transform without a condition, the transform must not be a parameter with the default None,
      because the new class skips a transform that is None. The code does not compare the flag with None.
    - `straight-line`: each function that the lambdas call is a plain function, defined once next to the lambdas. Such a
      function consists of assignments to names, ``if`` and ``return``. No name in such a function hides a name of the
      enclosing code.
    - `nothing-else`: every value that the code computes is used for the sample or in a condition. The code reads every
      sample once, and makes the same call, such as ``augment(x)``, at most once for each sample.
    - `own-names-only`: the dataset, the transforms and the flag are variables of the enclosing functions.
    - `bound-once`: the dataset, the transforms and the flag provably have their values before the call of ``type``.
      Their values are the same whenever code reads a sample.
    - `not-probed`: the new class has the attributes `dataset`, `training` and `transforms`, and the original class has
      none of them. So no file of the project reads such an attribute with `hasattr` or `getattr`. No file reads such an
      attribute in a `try` statement that handles AttributeError. No file sets such an attribute on an object other than
      `self`.
    - `not-copied`: no file of the project copies objects deeply. Deep copies are calls of `deepcopy`, `asdict`,
      `astuple`, `AveragedModel` and `pickle.dumps`. A file that uses `BaseEstimator` (scikit-learn) or skorch also
      counts as a file with deep copies, because `clone` copies the arguments of an estimator deeply. Copies of
      `state_dict()` and `parameters()` do not count. In a project with deep copies, the rule still rewrites the class
      if the project passes the dataset and its loader only to loader calls, loops, `len` and functions of the project.
      Each of these functions must also use the dataset and the loader only in these ways, and must not return the
      dataset or the loader.

    After the rewrite, the class of the dataset is `WorkerSafeAugmentedDataset`, and its samples are tuples. If a sample
    of the wrapped dataset is not a pair, reading the sample raises a ValueError, because the new class unpacks each
    sample.
    """

    code = "CHP005"
    name = "dataset-wrapper"
    reason = (
        "A dataset class that type() creates from lambdas cannot be pickled for worker processes. The rewrite uses a "
        "class of chirpid_patch, which can be pickled, and augments whole batches."
    )
    safety = Safety.SAFE
    trigger = ("Dataset",)
    beside = ("__getitem__", re.compile(rf"\btype{CALL}"))

    def names(self, project: Project) -> Set[str]:
        """Return the other names under which modules of the project import ``Dataset``."""
        return find_aliases(project, "Dataset")

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Replace calls of dataset classes that ``type(...)`` creates with calls of ``WorkerSafeAugmentedDataset``."""
        for call in module.find(cst.Call):
            match [call.func, *(argument.value for argument in call.args)]:
                case [cst.Name(value="type"), cst.SimpleString(), cst.Tuple(elements=bases), cst.Dict() as entries]:
                    match = _examine_type_call(module, project, call, [base.value for base in bases], entries)
                    if match is not None:
                        yield match


def _examine_type_call(
    module: Module, project: Project, node: cst.Call, bases: Sequence[cst.BaseExpression], entries: cst.Dict
) -> RuleMatch | None:
    parent = module.parents[node]
    removal: list[Edit] = []
    if isinstance(parent, cst.Call) and parent.func is node:
        constructions = [parent]
    elif isinstance(parent, cst.Assign) and [type(target.target) for target in parent.targets] == [cst.Name]:
        constructions = constructor_calls(module, parent, module.source(parent.targets[0].target)) or []
        line = module.parents[parent]
        removal.append(delete_lines_of_statement(module, line))
        if not can_delete_lines_of(module, line):
            constructions = []
    else:
        return None
    is_dataset = only_base_is_torch_dataset(module, project, bases)
    is_local = not isinstance(module.scopes.scope_of(node).node, cst.Module | cst.ClassDef)
    if not constructions or not is_local or not is_dataset:
        return None
    offset = module.span(node)[0]
    meaning = match_dataset_type_call(module, node, entries)
    captured = None if meaning is None else _captured_names(module, node, meaning)
    if meaning is None or captured is None or any(construction.args for construction in constructions):
        message = (
            "this dataset class is made by type() from functions that the rule does not recognise; "
            "use a class statement"
        )
        return RuleMatch(offset, message)
    problem = next(
        (one for place in constructions if (one := why_captured_values_change(module, project, place, captured))), None
    )
    if problem is None and has_dynamic_attribute_read(project, *_ATTRIBUTES):
        problem = f"{_ADDS}, and the project reads such attributes with `hasattr` or `getattr`"
    if problem is None and has_guarded_attribute_read(project, *_ATTRIBUTES):
        problem = f"{_ADDS}, and the project handles the AttributeError of a missing attribute"
    if problem is None and any(may_be_assigned_outside_class(project, one) for one in (*_ATTRIBUTES, "training")):
        problem = f"{_ADDS}, and the project sets such attributes on objects other than `self`"
    if problem is None and any(may_be_deep_copied(module, project, place) for place in constructions):
        problem = (
            "after the rewrite, a deep copy of an object with this dataset would also copy the wrapped dataset and "
            "the transforms"
        )
    if problem is not None:
        found = "this dataset class is made by type() from lambdas; use a class statement"
        return RuleMatch(offset, f"{found}. Not rewritten: {problem}")
    training = "" if meaning.training is None else f"training={meaning.training}, "
    arguments = (
        f"{meaning.dataset}, {training}transforms=[{', '.join(str(one.function) for one in meaning.transforms)}]"
    )
    built = f"{_REPLACEMENT}({arguments})"
    edits = (*removal, *(Edit(*module.span(construction), built) for construction in constructions))
    message = f"workers cannot receive a class that `type()` creates from lambdas; replaced by `{_REPLACEMENT}`"
    return RuleMatch(offset, message, edits, frozenset({runtime_import(_REPLACEMENT)}))


def _captured_names(module: Module, node: cst.Call, meaning: AugmentedSamples) -> list[CapturedName] | None:
    """Return the variables of enclosing functions that hold the dataset, the transforms and the training flag.

    The result is None if the dataset, a transform or the flag is not such a variable. The result is also None if the
    code calls a transform without a condition, and the transform is a parameter with the default None.
    """
    found: list[CapturedName] = []
    unconditional = [transform.function for transform in meaning.transforms if transform.gate is None]
    for one in (meaning.dataset, *(transform.function for transform in meaning.transforms), meaning.training):
        owner = module.scopes.lookup(one.text, node) if isinstance(one, Name) else None
        if owner is not None and not isinstance(owner[0].node, cst.Module):
            found.append(CapturedName(str(one), *owner))
            if one in unconditional and _is_none_by_default(found[-1]):
                # For a transform that is None, the lambda raises an error, but the new class would skip the transform.
                return None
        elif one is not None:
            return None
    return found


def _is_none_by_default(capture: CapturedName) -> bool:
    parameter = function_parameters(capture.scope.node).get(capture.name)
    return parameter is not None and parameter.default is not None and is_name(parameter.default, "None")

"""CHP001: build loaders with `OptimalDataLoaderFactory`."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from functools import partial

import libcst as cst

from chirp_migrate.analysis.dataflow.rebinding import may_be_patched_elsewhere, may_be_set_by_called_function
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.analysis.loaders.config_scope import config_expression
from chirp_migrate.analysis.loaders.loader_calls import argument_positions
from chirp_migrate.analysis.loaders.loader_role import loader_role
from chirp_migrate.analysis.loaders.loader_uses import LoaderClassUse, use_of_loader_class, uses_names_beyond_imports
from chirp_migrate.edits.imports import local_import_edits, shadowed_import_names
from chirp_migrate.rules.api import (
    FACTORY,
    FACTORY_FUNCTIONS,
    FACTORY_METHOD,
    TORCH_LOADER,
    CallEdit,
    Edit,
    GainKind,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    dotted_source,
    find_aliases,
    find_nodes,
    is_class_patched,
    is_in_fstring,
    is_patched,
    is_read,
    quote_sources,
    resolve_node,
    runtime_import,
)
from chirp_migrate.rules.chp013_non_blocking_transfer import gain_of_pinned_copies
from chirp_migrate.rules.moved_by_rule import is_moved_by_rule

#: Code that reloads PyTorch's module ``dataloader``. The reload creates a second class ``DataLoader``, and code that
#: imported the first class earlier still has the first class.
_RELOADED = r"\breload\s*\(\s*(?:\w+\s*\.\s*)*dataloader\s*,?\s*\)"
#: The message for each reason why a mention of `DataLoader` is not rewritten.
_NOT_REWRITTEN = {
    "ambiguous-name": "not rewritten: `DataLoader` may refer to PyTorch's class or to `{}` here; import the two "
    "objects under different names",
    "subclass": "not rewritten: `{}` subclasses `DataLoader`; inherit from `chirpid_patch.BatchedDataLoader`, which "
    "takes the same arguments",
    "own-iteration": "not rewritten: `{}` subclasses `DataLoader` and overrides `__iter__`",
    "used-as-value": "`DataLoader` is {}, so the rule cannot find the call that builds the loader; build "
    f"the loader with `{FACTORY}.create_loader` by hand",
    "replaced": "not rewritten: `{}` is patched elsewhere (for example in a test), and the patch would no longer take "
    f"effect; patch `{FACTORY}` instead and migrate this call by hand",
    "no-dataset": "not rewritten: the `DataLoader` call has no dataset",
    "too-many-arguments": "not rewritten: the `DataLoader` call has too many arguments, or passes one argument twice",
}


class DataLoaderFactory(Rule):
    """Rewrites a mention of `DataLoader` only if all these conditions hold:

    - `pytorch-class`: the name refers to PyTorch's `DataLoader`. The file may import the class from PyTorch or from
      another file of the project. No further import or assignment, such as a second import under `except ImportError`
      or an `import *`, can bind the name to another object.
    - `only-called`: the code calls the name directly, or passes the name to `functools.partial`. The code may also
      store the class in a variable, parameter default or attribute of `self`, as in `make = DataLoader`. If the code
      stores the class, the file uses the stored class only in calls, as in `make(dataset)`, and no other file uses the
      stored class.
    - `no-subclass`: the mention is not a base class, as in `class MyLoader(DataLoader)`.
    - `dataset-given`: the call passes a dataset, or passes arguments with `*` or `**`.
    - `known-parameters`: the call passes no parameter twice. The call has at most as many positional arguments as
      `DataLoader` takes.
    - `not-replaced`: no file of the project replaces the name `DataLoader` in this module, and no file replaces a
      method of `DataLoader`. A `patch` or `setattr` of the name counts as a replacement, and so does
      `patch.dict(train.__dict__, {"DataLoader": Fake})`. Any string that ends in the names of the module and the class,
      such as `"train.DataLoader"`, also counts, because code may pass the string to `patch`. An assignment such as
      `train.DataLoader = Fake` counts as a replacement, but an assignment to `self.DataLoader` does not. An assignment
      to an attribute of `DataLoader` counts as a replacement. In a file that mentions `DataLoader`, an assignment to
      `__defaults__`, `__kwdefaults__` or `__code__` of any function counts as a replacement, because the function may
      be a method of `DataLoader`. Some projects set attributes with computed names, as in `setattr(module, name,
      value)`. In such a project, any call with an argument `"DataLoader"` or `DataLoader=…` counts as a replacement. A
      `patch` of PyTorch's own module, or a `reload` of PyTorch's module `dataloader`, counts for code that gets the
      class from PyTorch's module again, as in `data.DataLoader(…)` or with an import in a function. A name that the
      module imports at its top level still refers to the original class, so neither replacement counts for such a name.
    - `name-not-hidden`: no function, class or comprehension around the call binds the name `OptimalDataLoaderFactory`
      to another object. Each rule has such a condition for the names that its rewritten code imports.

    The rewritten code calls `create_loader`, which takes the arguments of `DataLoader`. The rewrite keeps all
    arguments. If every loader of a file is clearly for training, validation or test, the rewritten code calls
    `create_training_loader`, `create_validation_loader` and `create_test_loader` instead. The rule reads the purpose of
    a loader from the names of the loader, its dataset and the enclosing functions. The name of a function that both
    trains and validates, such as `cross_validate`, does not count. If the call passes `pin_memory`, this argument
    applies to all batches, as in PyTorch's loader. Without `pin_memory`, the loader pins only dense tensors in batches
    of default collation. The loader then pins no batches of your own `collate_fn`.

    By default the rule rewrites only calls whose rewrite has a gain. docs/apply.md lists the gains. The rewrite of a
    stored class, as in `make = DataLoader`, has a gain only if at least one call of the stored class in this file
    passes a dataset that the loader can read in batches.

    The new code also reads the settings `optimize_dataloaders` and `benchmark_performance` from a configuration, as in
    `config.get('optimize_dataloaders', True)`, but only if the call of `get` provably raises no error. For this proof,
    the rule requires that the configuration is called `config`, `cfg`, `self.config` or `self.cfg`. On every path to
    the loader, the same function must already have called `get` on the configuration, with a string as the key and a
    number, None, True or False as the default. The configuration is a local variable or parameter of this function. No
    code below this call, no comprehension and no lambda may bind or delete the name of the configuration, and the call
    that builds the loader is not in a lambda or generator expression. An attribute such as `self.config` counts only in
    a class without bases, subclasses and decorators. Only `__init__` may assign an attribute `config`. No class of the
    project may define `get` or `__getattr__`, or inherit from a mapping class. No code may assign an attribute `get`.
    """

    code = "CHP001"
    name = "dataloader-factory"
    reason = (
        "A hand-written loader call sets workers, pinning and prefetching for one machine, and reads samples one by "
        "one. The factory keeps every argument that can change the data (batch size, order, sampler, collation, "
        "generator, persistent_workers). The factory chooses all other settings for the dataset and the machine."
    )
    safety = Safety.SAFE
    trigger = ("DataLoader", FACTORY, *FACTORY_FUNCTIONS)
    counts_sites = True
    in_place = True

    def names(self, project: Project) -> Set[str]:
        """Return the other names under which modules of the project import ``DataLoader``."""
        return find_aliases(project, "DataLoader")

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether the code uses ``DataLoader`` or the factory for more than imports and annotations."""
        return uses_names_beyond_imports(outline, {*self.trigger, *self.names(project)})

    def may_have_more(self, outline: Outline, project: Project) -> bool:
        """Return whether rewritten code still uses ``DataLoader`` for more than imports and annotations."""
        return uses_names_beyond_imports(outline, {"DataLoader", *self.names(project)})

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Rewrite every call that resolves to PyTorch's ``DataLoader``; report other uses of the class."""
        spellings = {"DataLoader", *self.names(project)}
        known = {*spellings, *FACTORY_FUNCTIONS}
        nodes: list[cst.Name | cst.Attribute] = [name for name in module.find(cst.Name) if name.value in known]
        nodes += [one for one in module.find(cst.Attribute) if one.attr.value in known]
        mentions: list[tuple[cst.Name | cst.Attribute, LoaderClassUse, str]] = []
        made = set[str]()
        for node in sorted(nodes, key=lambda one: module.span(one)[0]):
            if not is_read(module, node):
                continue
            last = node.attr.value if isinstance(node, cst.Attribute) else node.value
            names = resolve_node(project, module, node)
            if last not in spellings:
                if names and all(map(FACTORY_METHOD.fullmatch, names)):
                    made.add(last)
                    yield RuleMatch(module.span(node)[0], "the factory already builds this loader", fine=True)
            else:
                foreign = {name for name in names if not TORCH_LOADER.fullmatch(name)}
                if foreign < names:
                    mentions.append((node, use_of_loader_class(module, project, node), "` or `".join(sorted(foreign))))
        uses = [use for _, use, others in mentions if not others]
        # All loaders of a file are built in the same way: by `create_loader`, or by the methods for their roles.
        by_role = "create_loader" not in made and all(_has_known_role(module, use) for use in uses)
        for node, use, others in mentions:
            yield from _examine_mention(module, project, node, use, others, by_role=by_role)


def _has_known_role(module: Module, use: LoaderClassUse) -> bool:
    """Return whether a mention of ``DataLoader`` shows the role of its loader: training, validation or test.

    The rewritten file calls ``create_training_loader`` and similar functions only if the result is True for all
    mentions. The result is also True for a mention that the rule does not rewrite, so that such a mention does not
    prevent these calls.
    """
    if use.call is None:
        return bool(use.why == "named" or use.what)
    values = _arguments_by_name(use.call)
    return values is None or ("dataset" in values and bool(loader_role(module, use.call, values)))


def _arguments_by_name(call: cst.Call) -> dict[str, cst.BaseExpression] | None:
    """Return the arguments of a ``DataLoader`` call by parameter name.

    The result is empty if the call passes ``*`` or ``**``, and ``None`` if the arguments are invalid.
    """
    if any(argument.star for argument in call.args):
        return {}
    places = argument_positions(call)
    if "dataset" not in places or len(places) < len(call.args):
        return None
    return {name: call.args[position].value for name, position in places.items()}


def _examine_mention(
    module: Module,
    project: Project,
    node: cst.Name | cst.Attribute,
    use: LoaderClassUse,
    others: str,
    *,
    by_role: bool,
) -> Iterable[RuleMatch]:
    """Yield the finding for one mention of ``DataLoader``.

    A mention that only names the class, as in an annotation, has no finding.

    Args:
        module: the module that contains the mention.
        project: the user's project.
        node: the mention.
        use: how the code uses the mention.
        others: other objects to which the name may refer, for the message; "" if the name refers only to PyTorch's
            class.
        by_role: whether the rewritten code may call ``create_training_loader`` and similar functions.
    """
    offset, root = module.span(node)[0], find_nodes(node, cst.Name)[0]
    if use.why == "named":
        return
    if others:
        match = _report_reason(offset, "ambiguous-name", others)
    elif use.call is not None:
        match = _rewrite_call(module, project, use.call, by_role=by_role)
        if match.edits:
            match = _add_gain(module, project, use.call, match)
    elif use.what:
        has_iteration = use.why == "subclass" and _overrides_iteration(module, node)
        match = _report_reason(offset, use.why, use.what, reason="own-iteration" if has_iteration else use.why)
    else:
        message = "`DataLoader` is stored or passed to `partial`; replaced by `create_loader`, with the same arguments"
        edit = Edit(*module.span(node), f"{FACTORY}.create_loader")
        match = RuleMatch(offset, message, (edit,), gain=loader_gains(project).gain_of_stored_class(module.path))
    if match.edits and _is_replaced(module, project, node, root):
        match = _report_reason(offset, "replaced", dotted_source(node) or root.value)
    elif match.edits:
        # If a function imports the class, and the module itself does not import torch, the function also imports the
        # factory.
        needed = frozenset({runtime_import(FACTORY)})
        beside = local_import_edits(module, root, runtime_import(FACTORY), project.import_style)
        if beside is None or shadowed_import_names(module, needed, match.edits):
            match = replace(match, imports=needed)
        else:
            match = replace(match, edits=(*match.edits, *beside))
    yield match


def _add_gain(module: Module, project: Project, call: cst.Call, match: RuleMatch) -> RuleMatch:
    """Return the match with the gain of its rewrite, such as batched reading, or faster copies of batches in a loop."""
    gain = loader_gains(project).gain_of_call(module, call, partial(is_moved_by_rule, project))
    if gain.kind is GainKind.NOTHING:
        gain = gain_of_pinned_copies(module, project, call) or gain
    return replace(match, gain=gain)


def _is_replaced(module: Module, project: Project, node: cst.Name | cst.Attribute, root: cst.Name) -> bool:
    """Return whether other code replaces ``DataLoader`` or one of its methods, in this module or in PyTorch."""
    owner = module.scopes.lookup(root.value, node)
    asked_again = node is not root or owner is None or owner[0] is not module.scopes.module
    path = dotted_source(node) or root.value
    of_module = path.rpartition(".")[0].rpartition(".")[2]
    return (
        any(may_be_patched_elsewhere(module, project, one) for one in (path, "DataLoader"))
        or is_class_patched(project, "DataLoader")
        or may_be_set_by_called_function(project, "DataLoader")
        or (asked_again and any(is_patched(project, one, "DataLoader") for one in ("data", "dataloader", of_module)))
        or (asked_again and project.search(_RELOADED, "reload"))
    )


def _report_reason(offset: int, why: str, what: str = "", *, reason: str = "") -> RuleMatch:
    return RuleMatch(offset, _NOT_REWRITTEN[reason or why].format(what), why=why)


def _overrides_iteration(module: Module, base: cst.CSTNode) -> bool:
    """Return whether the class that inherits from ``base`` defines its own ``__iter__``."""
    owner = next((one for one in module.ancestors(base) if isinstance(one, cst.ClassDef)), None)
    methods = (one for one in owner.body.body if isinstance(one, cst.FunctionDef)) if owner is not None else ()
    return any(one.name.value == "__iter__" for one in methods)


def _rewrite_call(module: Module, project: Project, call: cst.Call, *, by_role: bool) -> RuleMatch:
    offset, change = module.span(call)[0], CallEdit(module, call, project.code_style)
    star = max((argument.star for argument in call.args), key=len, default="")
    if star:
        change.rename(f"{FACTORY}.create_loader")
        given = quote_sources(module, *(one for one in call.args if one.star))
        message = f"`DataLoader` call with {given}: replaced by `create_loader`, with the same arguments"
        return RuleMatch(offset, message, change.edits())
    places = argument_positions(call)
    if "dataset" not in places:
        return _report_reason(offset, "no-dataset")
    if len(places) < len(call.args):
        return _report_reason(offset, "too-many-arguments")
    values = {name: call.args[position].value for name, position in places.items()}
    role = loader_role(module, call, values) if by_role else ""
    method = f"create_{role}_loader" if role else "create_loader"
    message = f"`DataLoader` call: replaced by `{method}`{'' if role else ', with the same arguments'}"
    change.rename(f"{FACTORY}.{method}")
    for name, position in places.items() if role else ():
        if position >= 2 and call.args[position].keyword is None:
            change.name(position, name)
    config = None if is_in_fstring(module, call) else config_expression(module, project, call)
    if config is not None:
        quote = max("'", '"', key=lambda one: module.text.count(f".get({one}"))
        change.add(f"optimize={config}.get({quote}optimize_dataloaders{quote}, True)")
        change.add(f"benchmark={config}.get({quote}benchmark_performance{quote}, False)")
    return RuleMatch(offset, message, change.edits())

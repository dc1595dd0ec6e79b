"""CHP009: call an augmentation that is imported but unused. The rewrite needs `--unsafe`, because training changes."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import variable_reads
from chirp_migrate.analysis.loaders.config_scope import config_expression
from chirp_migrate.analysis.loaders.loader_calls import loader_calls
from chirp_migrate.rules.api import Edit, Module, Project, Rule, RuleMatch, Safety, find_function

_WRAPPER = "create_augmented_dataset_wrapper"


class WireAugmentation(Rule):
    """Rewrites a call of `create_training_loader` only if all these conditions hold:

    - `runtime-factory`: the called function is `OptimalDataLoaderFactory.create_training_loader` of `chirpid_patch`.
    - `wrapper-unused`: the module imports the function `create_augmented_dataset_wrapper` at its top level, and does
      not mention the function again.
    - `wrapper-visible`: at the call and at the top level of the module, the name `create_augmented_dataset_wrapper`
      always refers to the imported function.
    - `known-flags`: the function `create_augmented_dataset_wrapper` belongs to the project. After its first parameter,
      the function has the parameters `use_spec_augment` and `use_gaussian_noise`, or else the parameter `training`. All
      further parameters have defaults.
    - `dataset-first`: the first argument of the call is positional, without a star.
    - `config-available`: on every path to the call, the same function has already called `get` on a configuration,
      which is called `config`, `cfg`, `self.config` or `self.cfg` (see CHP001). The added code reads the
      flags `spec_augment` and `gaussian_noise` from this configuration.
    """

    code = "CHP009"
    name = "wire-augmentation"
    reason = (
        "The configuration of the training has flags for augmentation, and a module imports a function that augments "
        "a dataset. But the module never calls the function, so runs that enable augmentation train without it. The "
        "rewrite adds the call. The call changes what such runs learn, so the rewrite needs --unsafe."
    )
    safety = Safety.BEHAVIOUR
    trigger = (_WRAPPER,)
    follows = frozenset({"CHP001"})

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Wrap the dataset of migrated training loaders in the wrapper that the module imports but does not use."""
        for name, bindings in module.scopes.module.bindings.items():
            if bindings[0].qualified.rpartition(".")[2] != _WRAPPER or len(bindings) > 1:
                continue
            if variable_reads(module, name, module.scopes.module):
                continue
            found = find_function(project, module.absolute(bindings[0].qualified))
            if found is not None:
                yield from _wrap_dataset(module, project, name, found[1].params)


def _wrap_dataset(module: Module, project: Project, name: str, wrapper: cst.Parameters) -> Iterable[RuleMatch]:
    more = [parameter.name.value for parameter in (*wrapper.params[1:], *wrapper.kwonly_params)]
    needed = {one.name.value for one in (*wrapper.params[1:], *wrapper.kwonly_params) if one.default is None}
    for loader in loader_calls(module, project):
        call = loader.call
        if loader.role != "training":
            continue
        found = module.scopes.lookup(name, call)
        if found is None or found[0] is not module.scopes.module:
            continue
        config = config_expression(module, project, call)
        if config is None or not call.args or call.args[0].keyword is not None or call.args[0].star:
            continue
        spec, noise = (f"{config}.get('{key}', False)" for key in ("spec_augment", "gaussian_noise"))
        flags = {"training": spec}
        if {"use_spec_augment", "use_gaussian_noise"} <= set(more):
            flags = {"use_spec_augment": spec, "use_gaussian_noise": noise}
        if not flags.keys() <= set(more) or not needed <= flags.keys():
            continue
        dataset, given = call.args[0], ", ".join(f"{flag}={value}" for flag, value in flags.items())
        edit = Edit(*module.span(dataset), f"{name}({module.source(dataset.value)}, {given})")
        read = "`spec_augment`" if len(flags) == 1 else "`spec_augment` and `gaussian_noise`"
        message = (
            "no code reads the augmentation flags; "
            f"the rewrite passes the dataset, and {read} of the configuration, to `{name}`"
        )
        yield RuleMatch(module.span(call)[0], message, (edit,))

"""CHP009: configuration flags for augmentation that nothing reads take effect (R-000-4.1). Changes training: opt-in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.config_scope import config_expression
from chirp_migrate.module import Module, matching
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule

_WRAPPER = "create_augmented_dataset_wrapper"


class WireAugmentation(Rule):
    code: ClassVar[str] = "CHP009"
    name: ClassVar[str] = "wire-augmentation"
    reason: ClassVar[str] = (
        "The configuration has flags for augmentation and the module imports the wrapper, but never calls it: runs "
        "that ask for augmentation train without. Wiring it in changes what such runs learn, so it is opt-in."
    )
    safety: ClassVar[Safety] = Safety.BEHAVIOUR
    trigger: ClassVar[tuple[str, ...]] = (_WRAPPER,)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Wrap the training dataset of migrated loaders in the wrapper that was imported for it."""
        imported = {
            alias.evaluated_alias or alias.evaluated_name: f"{module.absolute(module.source(node.module))}.{_WRAPPER}"
            for node in matching(module.tree, m.ImportFrom())
            if isinstance(node, cst.ImportFrom)
            and node.module is not None
            and not isinstance(node.names, cst.ImportStar)
            for alias in node.names
            if alias.evaluated_name == _WRAPPER
        }
        for name, qualified in imported.items():
            if matching(module.tree, m.Call(m.Name(name))):
                continue
            parameters = project.function_parameters(qualified)
            if parameters is not None:
                yield from _wire(module, name, parameters)


def _wire(module: Module, name: str, parameters: tuple[str, ...]) -> Iterable[Proposal]:
    for call in matching(module.tree, m.Call(m.Attribute(attr=m.Name("create_training_loader")))):
        assert isinstance(call, cst.Call)
        config = config_expression(module, call)
        if config is None or not call.args or call.args[0].keyword is not None or call.args[0].star:
            continue
        spec, noise = (f"{config}.get('{key}', False)" for key in ("spec_augment", "gaussian_noise"))
        if {"use_spec_augment", "use_gaussian_noise"} <= set(parameters):
            flags = f"use_spec_augment={spec}, use_gaussian_noise={noise}"
        elif "training" in parameters:
            flags = f"training={spec}"
        else:
            continue
        dataset = call.args[0]
        edit = Edit(*module.span(dataset), f"{name}({module.source(dataset.value)}, {flags})")
        message = f"spec_augment and gaussian_noise in the configuration are ignored here: {name} would apply them"
        yield Proposal(module.span(call)[0], message, (edit,))

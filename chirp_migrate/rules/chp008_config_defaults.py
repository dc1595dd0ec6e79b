"""CHP008: add the settings for the loaders to the default configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.loaders.config_uses import first_use_of_whole_config
from chirp_migrate.rules.api import Edit, Module, Project, Rule, RuleMatch, Safety

_TRAINING_KEYS = frozenset(
    {"batch_size", "num_epochs", "epochs", "learning_rate", "lr", "standardize", "early_stopping"}
    | {"k_folds", "test_size"}
)
_AUGMENTATION = ("spec_augment", "gaussian_noise")


def _contains_training_keys(text: str) -> bool:
    return sum(key in text for key in _TRAINING_KEYS) >= 3


class ConfigDefaults(Rule):
    """Adds missing keys to a dictionary with default settings only if all these conditions hold:

    - `config-read`: a file of the project contains `config.get(` and builds a loader.
    - `default-config`: the dictionary is written as `{…}` and assigned to one name, `default_config` or
      `DEFAULT_CONFIG`.
    - `training-keys`: at least three keys of the dictionary are settings of a training, such as `batch_size`.
    - `plain-keys`: the dictionary contains no `**`.
    - `read-with-default`: the project uses the added key only in two ways: as a key in a `{…}`, and in `.get('key',
      value)` with the same value that the rule adds.
    - `only-looked-up`: code uses an object whose name ends in `config`, a configuration, only as follows. Code may look
      up keys in a configuration. Code may test, copy or merge a configuration, and pass a configuration on under a name
      that ends in `config`. A function that gets a configuration belongs to the project, has a parameter whose name
      ends in `config`, and has no decorator that may print arguments. No code prints, saves, compares or unpacks a
      configuration. No code reads variables with `locals`, `globals`, `eval` or stack frames. If an attribute stores a
      configuration, no code reads all attributes of an object, as `vars(trainer)` does. No code then passes a variable
      to `save`, `dump` or `dumps`, unless the variable contains a dictionary, list or tuple, or the result of
      `state_dict()`. If an attribute stores a configuration, the object with this attribute is no ``Namespace`` of
      ``argparse``. If a module stores a configuration, no code lists the names of a module, as `dir(settings)` does. No
      class declares a field for a configuration, as in `config: dict`.

    The rule adds `optimize_dataloaders`, `benchmark_performance` and the augmentation flags `spec_augment` and
    `gaussian_noise`, if the dictionary lacks these keys. The rule adds an augmentation flag only if the flag is a
    parameter of the function that contains the dictionary, or if the project reads the flag with `config.get`.
    """

    code = "CHP008"
    name = "config-defaults"
    reason = (
        "The migrated loaders read two keys of the configuration: optimize_dataloaders (False restores the original "
        "loading) and benchmark_performance (True logs the data wait of each epoch). The rule adds both keys to the "
        "default configuration, where users can see and change them."
    )
    safety = Safety.SAFE
    trigger = ("default_config", "DEFAULT_CONFIG")
    beside = (_contains_training_keys,)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Add missing keys to the dictionaries with default settings, if the project reads settings for its loaders."""
        if not project.search(
            r"(?s)\A(?=.*\bconfig\.get\()(?=.*(\bDataLoader\(|OptimalDataLoaderFactory\b))", "config"
        ):
            return
        for assign in module.find(cst.Assign):
            match assign:
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Dict() as defaults):
                    match = _add_missing_keys(module, project, defaults) if name.lower() == "default_config" else None
                    if match is not None:
                        yield match


def _is_read_otherwise(project: Project, key: str, default: str) -> bool:
    """Return whether code uses a key in any way other than ``.get(key, default)`` and ``{key: …}``."""
    own = re.escape(default)
    return project.search(rf"""\.get\(\s*(['"]){key}\1(?!\s*,\s*{own}\s*\))|(?<!get\()['"]{key}['"](?!\s*:)""", key)


def _add_missing_keys(module: Module, project: Project, node: cst.Dict) -> RuleMatch | None:
    entries = [element.key for element in node.elements if isinstance(element, cst.DictElement)]
    keys = {entry.evaluated_value for entry in entries if isinstance(entry, cst.SimpleString)}
    if len(keys & _TRAINING_KEYS) < 3:
        return None
    function = module.enclosing_function(node)
    arguments = {parameter.name.value for parameter in function.params.params} if function is not None else set()
    wanted = {
        key: key if key in arguments else "False"
        for key in _AUGMENTATION
        if key in arguments or project.search(rf"\bconfig\.get\(['\"]{key}['\"]", key)
    }
    wanted |= {"optimize_dataloaders": "True", "benchmark_performance": "False"}
    missing = {
        key: value for key, value in wanted.items() if key not in keys and not _is_read_otherwise(project, key, value)
    }
    if not missing:
        return None
    offset, last = module.span(node)[0], node.elements[-1]
    names = ", ".join(f"`{one}`" for one in missing)
    found = f"the default configuration lacks {names}; add the missing keys by hand. Not rewritten: "
    if len(entries) < len(node.elements):
        return RuleMatch(offset, f"{found}the configuration unpacks another dictionary, which may contain these keys")
    shown = first_use_of_whole_config(project)
    if shown is not None:
        reason = f"`{shown}` uses all keys of the configuration, so new keys may change its result"
        return RuleMatch(offset, f"{found}{reason}")
    start, end = module.span(last)
    quote = '"' if isinstance(last, cst.DictElement) and module.source(last.key).startswith('"') else "'"
    own_line = not module.text[module.line_start(start) : start].strip()
    lines = [f"{quote}{key}{quote}: {value}" for key, value in missing.items()]
    line_end = module.line_end(end)
    rest = module.text[end:line_end].strip()
    if own_line and (not rest or rest[0] in ",#"):
        # Put each new entry on its own line, below the last entry and its comment.
        comma = () if rest.startswith(",") else (Edit(end, end, ","),)
        indent = module.indentation(start)
        text = f",{module.newline}".join(f"{indent}{line}" for line in lines) + ("" if comma else ",")
        edits = (*comma, Edit(line_end, line_end, text + module.newline))
    else:
        edits = (Edit(end, end, "".join(f", {line}" for line in lines)),)
    return RuleMatch(offset, f"the rewrite adds {names} to the default configuration", edits)

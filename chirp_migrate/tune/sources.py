"""Build the dataset to measure from the user's function or class, or from a configuration file."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from chirp_migrate.training.errors import TaskNotPossible, wrap_user_code_errors
from chirp_migrate.training.process.imports import import_object, project_modules
from chirp_migrate.tune.config import TuneConfig
from chirp_migrate.tune.measured_dataset import (
    MeasuredDataset,
    prepare_dataset_measurement,
    prepare_loader_measurement,
)
from chirp_migrate.tune.tune_report import CandidateSettings

DEFAULT_BATCH_SIZE = 32
"""Batch size if the configuration file contains no batch size."""

_TRAIN_TRANSFORMS, _PLAIN_TRANSFORMS = "get_train_transforms", "get_val_transforms"
_TRANSFORM = "transform"


def build_dataset_from_reference(
    reference: str, unaugmented: str, config: TuneConfig | None, uses_runtime: bool
) -> MeasuredDataset:
    """Build the dataset or loader that ``reference`` names, and prepare its measurement.

    Args:
        reference: name in the form ``MODULE:NAME`` of a dataset or loader, or of a function or class that returns one.
            A function or class that requires an argument gets the path of the configuration file.
        unaugmented: name in the same form for the dataset without its augmentation; an empty string if the user named
            no such dataset.
        config: the configuration file of the training; None without such a file.
        uses_runtime: whether a dataset without a loader is measured with the loader of ``chirpid_patch``; False for
            PyTorch's loader.

    Raises:
        TaskNotPossible: the object ``reference`` does not exist, cannot be called, or is no dataset that can be
            measured.
        UserCodeError: the user's code raised an error.
    """
    made = _build_dataset(reference, config)
    size = config.batch_size if config is not None else None
    if isinstance(made, DataLoader):
        subject = prepare_loader_measurement(made, "training")
    elif hasattr(made, "__getitem__") or hasattr(made, "__iter__"):
        subject = prepare_dataset_measurement(made, size or DEFAULT_BATCH_SIZE, uses_runtime)
    else:
        raise TaskNotPossible(f"{reference} returned {type(made).__name__}: it must return a dataset or a DataLoader")
    if unaugmented:
        plain = _build_dataset(unaugmented, config)
        subject.unaugmented = plain.dataset if isinstance(plain, DataLoader) else plain
    return _with_settings(subject, config)


def build_dataset_from_config(tree: Path, config: TuneConfig, uses_runtime: bool) -> MeasuredDataset:
    """Build the training dataset that a configuration file describes.

    The modules in ``tree`` with a function ``get_train_transforms`` must contain exactly one dataset class. A class
    counts as a dataset class if its constructor has the parameter ``transform`` and at least one other parameter. The
    arguments for the other parameters come from the sections ``data`` and ``training`` of the configuration file. For
    example, the argument for the parameter ``csv_file`` is the value of the key ``csv_file``, ``data_csv_file`` or
    ``data_csv``.

    Raises:
        TaskNotPossible: the project has no such class or several such classes, or the file lacks the value of a
            parameter.
        UserCodeError: the user's code raised an error.
    """
    found = [(module, kind) for module, path in project_modules(tree).items() for kind in _dataset_classes(path)]
    if len(found) != 1:
        names = ", ".join(f"{module}:{kind}" for module, kind in found) or "none"
        raise TaskNotPossible(
            f"the dataset of {config.file} was not found automatically: tune needs exactly one class with a parameter "
            f"{_TRANSFORM!r} in a module with {_TRAIN_TRANSFORMS} (found: {names}). Name the dataset with --dataset "
            "MODULE:CALLABLE"
        )
    module_name, kind = found[0]
    with wrap_user_code_errors(f"importing {module_name}"):
        module = importlib.import_module(module_name)
    dataset_class: Any = getattr(module, kind)
    arguments = _fill_parameters(f"{module_name}:{kind}", dataset_class, config, leave=_TRANSFORM)

    def built(transforms: str) -> Any:
        function = getattr(module, transforms)
        parameters = _fill_parameters(f"{module_name}:{transforms}", function, config)
        with wrap_user_code_errors(f"{kind} of {module_name}"):
            return dataset_class(**arguments, transform=function(**parameters))

    subject = prepare_dataset_measurement(
        built(_TRAIN_TRANSFORMS), config.batch_size or DEFAULT_BATCH_SIZE, uses_runtime
    )
    if hasattr(module, _PLAIN_TRANSFORMS):
        subject.unaugmented = built(_PLAIN_TRANSFORMS)
    return _with_settings(subject, config)


def _with_settings(subject: MeasuredDataset, config: TuneConfig | None) -> MeasuredDataset:
    """Add loader settings from the configuration file, and the names of their keys, to the report of ``subject``."""
    if config is None:
        return subject
    names = {"num_workers": "data", "prefetch_factor": "data", "batch_size": "training"}
    report = subject.report
    report.setting = {key: f"{section}.{key} in {config.file}" for key, section in names.items()}
    if report.now is None and config.num_workers is not None:
        ahead = (config.prefetch_factor or 2) if config.num_workers else None
        report.now = CandidateSettings(config.num_workers, ahead, batch_size=report.batch_size)
        subject.asked_workers = config.num_workers
    return subject


def _build_dataset(reference: str, config: TuneConfig | None) -> Any:
    with wrap_user_code_errors(f"importing {reference.rpartition(':')[0]}"):
        value = import_object(reference, "function or class", lambda one: not inspect.ismodule(one))
    if not callable(value) or isinstance(value, DataLoader):
        return value
    arguments = [config.location] if config is not None and _why_arguments_do_not_fit(value, ()) else []
    if problem := _why_arguments_do_not_fit(value, arguments):
        raise TaskNotPossible(
            f"{reference} cannot be called {'with the path of --config' if arguments else 'without arguments'} "
            f"({problem}): pass --dataset with a function that builds the dataset"
        )
    with wrap_user_code_errors(reference):
        return value(*arguments)


def _why_arguments_do_not_fit(function: Callable[..., Any], arguments: Sequence[str]) -> str:
    """Return why a function cannot be called with these arguments; an empty string if the call is possible."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # the function has no signature
        return ""
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return str(error)
    return ""


def _fill_parameters(what: str, function: Any, config: TuneConfig, leave: str = "") -> dict[str, Any]:
    """Return a dictionary: parameter of ``function`` → its value in the configuration file.

    Raises:
        TaskNotPossible: the configuration file lacks the value of a parameter that has no default.
    """
    values: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == leave or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        key, value = _find_parameter_value(name, config)
        if key is not None:
            values[name] = value
        elif parameter.default is parameter.empty:
            raise TaskNotPossible(
                f"{what} needs {name}, but {config.file} has no data.{name}: add this key, or pass --dataset "
                "with a function that builds the dataset"
            )
    return values


def _find_parameter_value(name: str, config: TuneConfig) -> tuple[str | None, Any]:
    keys = (name, f"data_{name}", f"data_{name.removesuffix('_file')}")
    sections: tuple[Mapping[str, Any], ...] = (config.data, config.training)
    return next(((key, section[key]) for section in sections for key in keys if key in section), (None, None))


def _dataset_classes(path: Path) -> list[str]:
    """Return the names of the classes in a file whose constructors have ``transform`` and another parameter.

    The result is empty if the file does not define a function ``get_train_transforms``.
    """
    try:
        content = path.read_bytes()
        if _TRAIN_TRANSFORMS.encode() not in content:
            return []
        statements = ast.parse(content).body
    except (OSError, SyntaxError, ValueError):
        return []
    if not any(isinstance(node, ast.FunctionDef) and node.name == _TRAIN_TRANSFORMS for node in statements):
        return []
    return [node.name for node in statements if isinstance(node, ast.ClassDef) and _takes_transform(node)]


def _takes_transform(kind: ast.ClassDef) -> bool:
    constructors = [node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    parameters = [a.arg for node in constructors for a in (*node.args.args, *node.args.kwonlyargs)]
    return _TRANSFORM in parameters and len(parameters) > 2

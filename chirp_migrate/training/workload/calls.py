"""Build the call of a training function. The name of each parameter determines its argument."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from chirp_migrate.training.process.imports import import_object
from chirp_migrate.training.workload.data import TrainingData, make_training_data
from chirp_migrate.training.workload.entry_points import (
    EntryPoint,
    TrainingSource,
    WorkloadSizes,
    training_function_arguments,
)
from chirp_migrate.training.workload.hook import make_training_call
from chirp_migrate.training.workload.script import prepare_script


def seed_everything(seed: int) -> None:
    """Seed the global random generators of Python, NumPy and PyTorch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def load_model(reference: str) -> Any:
    """Import the model class that ``reference`` names, as ``module:ClassName``; return None for an empty string.

    Raises:
        NoSuchObject: there is no such class.
    """
    return import_object(reference, "class") if reference else None


def data_for_entry_points(entry_points: tuple[EntryPoint, ...], sizes: WorkloadSizes) -> TrainingData:
    """Return the training data for entry points.

    Entry points in the project's source get data with the sizes ``sizes``. A workload function or script has its own
    data, so the function returns a few samples that nothing uses.
    """
    if all(entry.source is TrainingSource.FOUND for entry in entry_points):
        return make_training_data(sizes)
    return make_training_data(WorkloadSizes(samples=24, shape=(1, 8, 8), classes=2))


def prepare_call(entry: EntryPoint, model: Any, data: TrainingData, sizes: WorkloadSizes) -> Callable[[], Any]:
    """Return a function without parameters that runs the entry point ``entry``.

    The arguments of a training function switch the standardisation of samples on, and early stopping off. With early
    stopping, the versions before and after the migration could train for different numbers of epochs.

    Args:
        entry: the entry point (a training function, a call of the workload function, or a script).
        model: class of the model to train; None if the entry point itself chooses the model.
        data: data that a training function gets as arguments. A workload function or script has its own data, and
            ignores this argument.
        sizes: numbers of samples, epochs and folds, and the batch size.

    Raises:
        TaskNotPossible: the workload function does not return a training call with the name of ``entry``.
    """
    if entry.source is TrainingSource.SCRIPT:
        return prepare_script(entry.script)
    if entry.source is TrainingSource.HOOK:
        return make_training_call(entry.hook, entry.name, sizes)
    options = training_function_arguments(sizes)
    values: dict[str, Any] = {
        **options,
        "dataset": data.dataset(),
        "features": data.features.numpy(),
        "labels": data.labels.numpy(),
        "authors": data.authors,
        "train_indices": data.train_indices,
        "val_indices": data.val_indices,
        "fold_indices": data.folds,
        "model_class": model,
    }
    arguments = {name: values[name] for name in entry.parameters if name in values}
    target: Any = importlib.import_module(entry.module)
    owner, _, method = entry.name.rpartition(".")
    if owner:
        engine = getattr(target, owner)
        return lambda: getattr(engine(model, sizes.classes, dict(options["config"])), method)(**arguments)
    function = getattr(target, method)
    return lambda: function(**arguments)

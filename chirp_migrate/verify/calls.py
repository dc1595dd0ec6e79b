"""Turns an entry point and a data set into a call: every parameter by its documented name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from chirp_migrate.verify.data import TrainingData
from chirp_migrate.verify.workload import EntryPoint, Sizes

__all__ = ["load_model", "prepare_call"]

_SPLIT_ATTEMPTS = 200
"""Random splits that training_core may try: its default of tens of thousands would be timed instead of training."""


def load_model(reference: str) -> Any:
    """Import the model class named by ``module:ClassName``."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def prepare_call(entry: EntryPoint, model: Any, data: TrainingData, sizes: Sizes) -> Callable[[], Any]:
    """Build the call of ``entry`` on ``data``; nothing of the backend runs until it is called.

    Standardisation is on, as in the configuration that the backend's own ``training_core`` uses. Early stopping
    is set beyond the last epoch, so that both sides train equally long.
    """
    config = {
        "num_epochs": sizes.epochs,
        "batch_size": sizes.batch_size,
        "learning_rate": 0.001,
        "use_class_weights": True,
        "early_stopping": sizes.epochs + 1,
        "standardize": True,
        "standardize_sample_size": 1000,
        "aggregate_predictions": True,
        "test_size": 0.2,
        "random_state": 42,
        "k_folds": sizes.folds,
        "max_split_attempts": _SPLIT_ATTEMPTS,
    }
    values: dict[str, Any] = {
        "dataset": data.dataset(),
        "features": data.features.numpy(),
        "labels": data.labels.numpy(),
        "authors": data.authors,
        "train_indices": data.train_indices,
        "val_indices": data.val_indices,
        "fold_indices": data.folds,
        "model_class": model,
        "num_classes": sizes.classes,
        "config": config,
        "num_epochs": sizes.epochs,
        "batch_size": sizes.batch_size,
        "k_folds": sizes.folds,
        "standardize": True,
        "estop": sizes.epochs + 1,
    }
    arguments = {name: values[name] for name in entry.parameters if name in values}
    target: Any = importlib.import_module(entry.module)
    owner, _, method = entry.name.rpartition(".")
    if owner:
        engine = getattr(target, owner)
        return lambda: getattr(engine(model, sizes.classes, dict(config)), method)(**arguments)
    function = getattr(target, method)
    return lambda: function(**arguments)

"""Runs the fixture backend's training entry points; run with the backend's root as working directory.

Usage: python drive_backend.py OUT.json [NAME ...]

Writes {name: {"folds": [histories of a fold ...], "fingerprint": sha256 of the whole result}} for the entry
points named, or for all. A script of its own, so that the backend is imported in a fresh process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))

import numpy as np
import torch
import utils.cross_validation as cross_validation
import utils.training_core as training_core
import utils.training_utils as training_utils
import utils.util_backup as util_backup
from utils.models import BirdCNN, BirdCNNDropout, BirdCNNWide
from utils.synthetic import make_synthetic_dataset
from utils.training_engine import TrainingEngine

NUM_CLASSES = 4
EPOCHS = 2
BATCH = 16
SAMPLES = 50  # 40 for training (not divisible by the batch size), 10 for validation (less than one batch)
HISTORIES = ("train_losses", "val_losses", "train_accuracies", "val_accuracies")


def entry_points() -> dict[str, Callable[[], Any]]:
    """Every public training entry point, plain and standardised where that is an argument."""
    dataset, authors = make_synthetic_dataset(SAMPLES, NUM_CLASSES, (1, 32, 40), num_authors=10, seed=3)
    features, labels = dataset.tensors
    arrays = {"features": features.numpy(), "labels": labels.numpy(), "authors": authors.numpy()}
    order = np.random.default_rng(0).permutation(SAMPLES)
    split = (dataset, order[:40], order[40:])
    folds = [(order[20:], order[:20]), (order[:20], order[20:])]

    calls: dict[str, Callable[[], Any]] = {}
    for tag, standardize in (("plain", False), ("standardized", True)):
        config = {"num_epochs": EPOCHS, "batch_size": BATCH, "standardize": standardize}

        engine = TrainingEngine(BirdCNN, NUM_CLASSES, {**config, "use_class_weights": standardize})
        calls[f"training_engine.predefined.{tag}"] = partial(engine.run_single_fold_predefined, *split)
        calls[f"training_engine.stratified.{tag}"] = partial(engine.run_single_fold_stratified, dataset)
        calls[f"training_engine.cross_validation.{tag}"] = partial(engine.run_cross_validation, dataset, folds)

        for module_name, module in (("training_utils", training_utils), ("util_backup", util_backup)):
            for name in (
                "single_fold_training_with_predefined_split",
                "fast_single_fold_training_with_predefined_split",
                "fast_single_fold_training_with_augmentation",
            ):
                calls[f"{module_name}.{name}.{tag}"] = partial(
                    getattr(module, name), *split, BirdCNN, NUM_CLASSES, **config
                )

        for module_name, module in (("cross_validation", cross_validation), ("util_backup", util_backup)):
            calls[f"{module_name}.k_fold_cross_validation.{tag}"] = partial(
                module.k_fold_cross_validation, dataset, BirdCNN, NUM_CLASSES, k_folds=2, **config
            )
            calls[f"{module_name}.k_fold_cross_validation_with_predefined_folds.{tag}"] = partial(
                module.k_fold_cross_validation_with_predefined_folds,
                dataset,
                folds,
                BirdCNN,
                NUM_CLASSES,
                **config,
            )

        core_config = {**config, "k_folds": 2, "max_split_attempts": 200}
        calls[f"training_core.single_fold_training.{tag}"] = partial(
            training_core.single_fold_training, **arrays, model_class=BirdCNNDropout, config=core_config
        )
        calls[f"training_core.cross_val_training.{tag}"] = partial(
            training_core.cross_val_training, **arrays, model_class=BirdCNNWide, config=core_config
        )

    calls["util_backup.single_fold_training_with_augmentation"] = partial(
        util_backup.single_fold_training_with_augmentation,
        *split,
        BirdCNN,
        NUM_CLASSES,
        num_epochs=EPOCHS,
        batch_size=BATCH,
    )
    return calls


def fold_results(result: Any) -> list[dict[str, Any]]:
    """The result dictionaries of single folds, wherever the entry point puts them."""
    if isinstance(result, tuple):  # (results, best_results)
        results, best = result
        return [*fold_results(results), best]
    if "train_losses" in result:
        return [result]
    for key in ("fold_results", "folds"):
        if key in result:
            return list(result[key])
    return [fold for fold in result.values() if isinstance(fold, dict) and "train_losses" in fold]


def fingerprint(value: Any) -> str:
    """sha256 over every key, number and tensor of a result, in order."""
    digest = hashlib.sha256()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for key, item in node.items():
                digest.update(str(key).encode())
                walk(item)
        elif isinstance(node, (list, tuple)):
            for item in node:
                walk(item)
        elif isinstance(node, torch.Tensor):
            digest.update(node.numpy().tobytes())
        elif isinstance(node, np.ndarray):
            digest.update(node.tobytes())
        else:
            digest.update(repr(node).encode())

    walk(value)
    return digest.hexdigest()


def run(call: Callable[[], Any]) -> dict[str, Any]:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    result = call()
    folds = [
        {**{key: fold[key] for key in HISTORIES}, "confusion_total": int(fold["confusion_matrix"].sum())}
        for fold in fold_results(result)
    ]
    return {"folds": folds, "fingerprint": fingerprint(result)}


def main(out: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    # The backend asks for 12 workers and pinned memory wherever it runs; torch warns about both.
    warnings.filterwarnings("ignore", message=".*(worker|pin_memory).*")
    calls = entry_points()
    with contextlib.redirect_stdout(sys.stderr):
        report = {name: run(calls[name]) for name in names or calls}
    Path(out).write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

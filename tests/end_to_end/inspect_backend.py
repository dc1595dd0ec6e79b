"""Reports what the fixture backend's parts do, one by one; run with the backend's root as working directory.

Usage: python inspect_backend.py OUT.json

Writes one JSON object with the keys learning, habits, signatures and helpers.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import pickle
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))

import numpy as np
import torch
import utils.cross_validation as cross_validation
import utils.dataset_utils as dataset_utils
import utils.evaluation_utils as evaluation_utils
import utils.specaugment as specaugment
import utils.training_core as training_core
import utils.training_engine as training_engine
import utils.training_utils as training_utils
import utils.util_backup as util_backup
from PIL import Image
from torch.utils.data import Subset
from utils.models import BirdCNN
from utils.synthetic import make_synthetic_dataset

NUM_CLASSES = 4
SHAPE = (1, 32, 40)


def seed_everything(seed: int = 1) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def learning() -> dict[str, Any]:
    """Enough steps for the signal to be learnt; no workers, so it is quick."""
    dataset, _ = make_synthetic_dataset(160, NUM_CLASSES, SHAPE, seed=5)
    seed_everything()
    result = training_utils.fast_single_fold_training_with_predefined_split(
        dataset,
        range(120),
        range(120, 160),
        BirdCNN,
        NUM_CLASSES,
        num_epochs=12,
        batch_size=16,
        lr=0.005,
        standardize=True,
    )
    return {"train_losses": result["train_losses"], "val_accuracies": result["val_accuracies"]}


def pickles(value: Any) -> bool:
    # Lambdas and local classes raise the one or the other, depending on the Python version.
    try:
        pickle.dumps(value)
    except (AttributeError, pickle.PicklingError):
        return False
    return True


def raised(call: Callable[[], Any]) -> str:
    """The type of the error that a call ends with."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return ""


def habits() -> dict[str, Any]:
    """Which datasets can be sent to a worker that is not forked."""
    dataset, _ = make_synthetic_dataset(8, NUM_CLASSES, SHAPE)
    subset = Subset(dataset, range(8))
    mean, std = dataset_utils.compute_standardization_stats(dataset, range(8))
    normalize = util_backup.transforms.Lambda(lambda x: (x - mean) / (std + 1e-8))
    values = {
        "dataset_utils.create_augmented_dataset_wrapper": dataset_utils.create_augmented_dataset_wrapper(
            subset, use_spec_augment=True, use_gaussian_noise=True
        ),
        "util_backup.create_augmented_dataset_wrapper": util_backup.create_augmented_dataset_wrapper(subset),
        "util_backup.LazyStandardizedSubset": util_backup.LazyStandardizedSubset(dataset, range(8), mean, std),
        "util_backup.TransformedDataset": util_backup.TransformedDataset(subset, transform=normalize),
        "dataset_utils.StandardizedSubset": dataset_utils.StandardizedSubset(dataset, range(8), mean, std),
        "dataset_utils.AugmentedDataset": dataset_utils.AugmentedDataset(subset),
    }
    return {
        name: {
            "pickles": pickles(value),
            "length": len(value),
            "sample_shape": list(value[0][0].shape),
        }
        for name, value in values.items()
    }


def signatures() -> dict[str, Any]:
    modules = (
        cross_validation,
        dataset_utils,
        evaluation_utils,
        specaugment,
        training_core,
        training_engine,
        training_utils,
        util_backup,
    )
    report: dict[str, Any] = {}
    for module in modules:
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            report[f"{module.__name__}.{name}"] = str(inspect.signature(value))
    for name, value in vars(training_engine.TrainingEngine).items():
        if callable(value):
            report[f"utils.training_engine.TrainingEngine.{name}"] = str(inspect.signature(value))
    return report


def helpers() -> dict[str, Any]:
    """What the entry points do not reach: reading images, ensembles, masks, the PIL form, synthetic data."""
    report: dict[str, Any] = {}
    seed_everything()
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())
    dataset, authors = make_synthetic_dataset(24, NUM_CLASSES, SHAPE, num_authors=6, seed=2)
    again, _ = make_synthetic_dataset(24, NUM_CLASSES, SHAPE, num_authors=6, seed=2)
    other, _ = make_synthetic_dataset(24, NUM_CLASSES, SHAPE, num_authors=6, seed=4)
    features, labels = dataset.tensors
    report["synthetic"] = {
        "repeats": bool(torch.equal(features, again.tensors[0])),
        "differs_by_seed": not torch.equal(features, other.tensors[0]),
        "global_state_untouched": before[0] == random.getstate()
        and before[1] == np.random.get_state()[1].tolist()
        and bool(torch.equal(before[2], torch.get_rng_state())),
        "range": [features.min().item(), features.max().item()],
        "dtypes": [str(features.dtype), str(labels.dtype)],
        "class_counts": torch.bincount(labels).tolist(),
    }

    original = features.clone()
    masked = specaugment.SpecAugment(time_mask_param=10, freq_mask_param=8, mask_value=-1.0, p=1.0)
    masked_share = [float((masked(x) == -1.0).float().mean()) for x in features]
    noisy = specaugment.GaussianNoise(std=0.5, p=1.0)(features[0])
    pil = dataset_utils.PILAugmentedDataset(dataset, {"p": 1.0})
    report["augmentation"] = {
        "largest_masked_share": max(masked_share),
        "masks_something": max(masked_share) > 0,
        "input_untouched": bool(torch.equal(features, original)),
        "noise_range": [noisy.min().item(), noisy.max().item()],
        "noise_changes": not torch.equal(noisy, features[0]),
        "never_below_p": bool(torch.equal(specaugment.SpecAugment(p=-1.0)(features[0]), features[0])),
        "pil_shape": list(pil[0][0].shape),
        "pil_rescales": [pil[0][0].min().item(), pil[0][0].max().item()],
        "pil_without_parameters": raised(partial(dataset_utils.PILAugmentedDataset, dataset)),
    }

    with tempfile.TemporaryDirectory() as folder:
        lines = ["filename,label,author"]
        for i, (x, y) in enumerate(dataset):
            Image.fromarray((x[0].numpy() * 255).astype(np.uint8)).save(Path(folder) / f"{i}.png")
            lines.append(f"{i}.png,{int(y)},{int(authors[i])}")
        table = Path(folder) / "segments.csv"
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")
        result = training_core.single_fold_training(
            data_path=str(table),
            model_class=BirdCNN,
            config={"num_epochs": 1, "standardize": False, "max_split_attempts": 50},
        )
    arrays = {"features": features.numpy(), "labels": labels.numpy(), "authors": authors.numpy()}
    report["without_predefined_split"] = raised(
        partial(training_core.single_fold_training, **arrays, model_class=BirdCNN, use_predefined_split=False)
    )
    report["from_images"] = {
        "train_losses": result["train_losses"],
        "confusion_shape": list(result["confusion_matrix"].shape),
    }

    folds = [(range(12, 24), range(12)), (range(12), range(12, 24))]
    models = [BirdCNN(NUM_CLASSES) for _ in folds]
    votes, targets = util_backup.EnsembleEvaluator(models, NUM_CLASSES, batch_size=5).predict(dataset)
    probabilities = evaluation_utils.predict_ensemble(models, dataset, torch.device("cpu"), batch_size=5)
    report["ensemble"] = {
        "votes": len(votes),
        "targets_in_order": targets.tolist() == labels.tolist(),
        "probability_shape": list(probabilities.shape),
        "probability_sums": [float(probabilities.sum(axis=1).min()), float(probabilities.sum(axis=1).max())],
        "fold_accuracies": util_backup.evaluate_on_folds(models, dataset, folds, NUM_CLASSES, batch_size=5),
    }

    loaders = {
        fast: util_backup.make_standardized_loaders(dataset, range(20), range(20, 24), 8, fast=fast)
        for fast in (False, True)
    }
    report["standardized_loaders"] = {
        "samples": [sum(len(y) for _, y in loader) for loader in loaders[True][:2]],
        "same_values": bool(torch.equal(next(iter(loaders[False][1]))[0], next(iter(loaders[True][1]))[0])),
    }
    return report


def main(out: str) -> None:
    torch.set_num_threads(1)
    # More workers than this machine may have: torch warns, and is right, but that is how the backend is.
    warnings.filterwarnings("ignore", message=".*worker.*")
    with contextlib.redirect_stdout(sys.stderr):
        report = {
            "learning": learning(),
            "habits": habits(),
            "signatures": signatures(),
            "helpers": helpers(),
        }
    Path(out).write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

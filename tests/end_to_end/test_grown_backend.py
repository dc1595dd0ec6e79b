"""A backend that several people went on writing: what is left alone there, and what `verify` says of it."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import FIXTURES, ROOT, copy_of, run

from .conftest import fingerprint

pytestmark = pytest.mark.slow

FIXTURE = FIXTURES / "grown_backend"
SIZES = ("--samples", "60", "--shape", "24x32", "--threads", "1", "--max-rounds", "4", "--epochs", "1")

#: What is found of datasets, augmenters and lists and not rewritten: the rescaling, which changes what the model sees.
LEFT_ALONE = {("CHP010", "utils/dataset_utils.py", "opt-in")}
OF_SAMPLES = {"CHP002", "CHP003", "CHP004", "CHP005", "CHP006", "CHP010", "CHP015", "CHP028"}
STANDARDIZES = '@standardizes_samples(dataset="dataset", indices="indices", mean="mean", std="std")'
DECLARED = {
    "utils/dataset_utils.py": {
        '@lists_samples("data")\nclass StandardizedDataset',
        f"{STANDARDIZES}\nclass StandardizedSubset",
        f"{STANDARDIZES}\nclass FastStandardizedSubset",
        '@augments_images(dataset="base_dataset", augmenter="augmenter", training="training")\nclass AugmentedDataset',
    },
    "utils/specaugment.py": {
        "@masks_spectrograms(mask_short_axes=False)\nclass SpecAugment",
        "@masks_images(mask_short_axes=False)\nclass PILSpecAugment",
        "@adds_noise()\nclass GaussianNoise",
    },
    "utils/util_backup.py": {
        '@augments_samples(dataset="dataset", transforms={"augmenter": "augmenter"}, training="training")\n'
        "class AugmentedDataset"
    },
}


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The backend after ``chirp-migrate apply``, its findings beside it."""
    tree = copy_of("grown_backend", tmp_path_factory.mktemp("grown") / "backend")
    result = run("apply", str(tree), "--no-scaffold", "--json", str(tree.parent / "findings.json"))
    assert result.exit_code == 0, result.output
    return tree


def test_datasets_and_augmenters_say_what_they_do(applied: Path) -> None:
    for name, texts in DECLARED.items():
        source = (applied / name).read_text(encoding="utf-8")
        assert {text for text in texts if text not in source} == set()


def test_nothing_is_left_alone_but_for_reasons(applied: Path) -> None:
    findings = json.loads((applied.parent / "findings.json").read_text(encoding="utf-8"))["findings"]
    mine = [one for one in findings if one["rule"] in OF_SAMPLES and one["status"] != "rewrite"]
    assert {(one["rule"], one["path"], one["status"]) for one in mine} == LEFT_ALONE


def test_all_compiles_and_is_undone_to_the_byte(applied: Path) -> None:
    assert compileall.compile_dir(applied, quiet=1, force=True)
    tree = copy_of("grown_backend", applied.parent / "undone")
    before = fingerprint(tree)
    assert run("apply", str(tree), "--no-scaffold").exit_code == 0
    assert fingerprint(tree) != before
    assert run("rollback", str(tree)).exit_code == 0
    assert {name: one for name, one in fingerprint(tree).items() if not name.startswith(".chirp")} == before


def test_the_rescaling_is_taken_out_where_that_is_asked_for(applied: Path) -> None:
    tree = copy_of("grown_backend", applied.parent / "unsafe")
    assert run("apply", str(tree), "--no-scaffold", "--unsafe").exit_code == 0
    assert run("apply", str(applied), "--no-scaffold", "--diff", "--unsafe").exit_code == 0
    source = (tree / "utils/dataset_utils.py").read_text(encoding="utf-8")
    assert "\nclass AugmentedDataset(WorkerSafeAugmentedDataset)" in source and "augments_images" not in source
    script = (
        "import torch\nfrom torch.utils.data import TensorDataset\nfrom utils.dataset_utils import AugmentedDataset\n"
        "x = torch.rand(3, 1, 40, 50)\n"
        "for training in (True, False):\n"
        "    made = AugmentedDataset(TensorDataset(x, torch.arange(3)), {'time_mask_param': 9}, training)\n"
        "    value = made[1][0]\n"
        "    assert bool(((value == x[1]) | (value == 0)).all()) and made.augment_params == {'time_mask_param': 9}\n"
    )
    assert errors_of(script, tree) == ""


@pytest.mark.exhaustive  # a fast test has the masks
def test_images_are_masked_a_batch_at_a_time(applied: Path) -> None:
    script = (
        "import torch\nfrom torch.utils.data import Subset, TensorDataset\n"
        "from chirpid_patch.declaration import batched_object_for\n"
        "from utils.dataset_utils import create_augmented_dataset_wrapper as wrapper\n"
        "below = Subset(TensorDataset(torch.rand(9, 1, 24, 32), torch.arange(9)), [3, 1])\n"
        "(masks,) = batched_object_for(wrapper(below, {'time_mask_param': 9})).transforms\n"
        "assert masks.masks.time_mask_param == 9 and masks.masks.mask_short_axes is False\n"
    )
    assert errors_of(script, applied) == ""


def errors_of(script: str, tree: Path) -> str:
    """What a program in the tree says on its error stream, if it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.exhaustive  # test_watching.py has broken entry points, too
def test_it_trains_as_before_and_the_broken_ways_are_named(applied: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    asked = [*SIZES, "--json", str(report), "-k", "not util_backup", "-v"]
    result = run("verify", applied, "--baseline", FIXTURE, *asked)
    values = json.loads(report.read_text(encoding="utf-8"))
    assert values["verdict"] != "failed" and values["differences"] == [], result.output
    assert set(values["ratios"]) == {"training_utils.fast_single_fold_training_with_predefined_split"}
    failing = {label: error.partition(":")[0] for label, error in values["workload"]["failing"].items()}
    assert failing == {
        "training_utils.fast_single_fold_training_with_augmentation": "TypeError",
        "training_core.single_fold_training": "UnboundLocalError",
    }
    assert all(label in result.stdout for label in failing)

"""What an option names and is not there: exit code 2, one sentence, and what there is in its place."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import LOADER, run, sentence, write_files

MODELS = """\
import torch


class Bird(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
"""
TRAINING = "def train(dataset, train_indices, val_indices, model_class, num_classes):\n    return 1.0\n"
WORKLOAD = "def workload(sizes):\n    return {'train': dict}\n\n\nclass Samples:\n    def __init__(self, path): ...\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose training is found by itself, with what could be named in its place."""
    files = {
        "utils/models.py": MODELS,
        "utils/training_utils.py": TRAINING,
        "work.py": WORKLOAD,
        "loading.py": LOADER,
        "notes.txt": "Notes.\n",
        "elsewhere/notes.txt": "",
    }
    root = write_files(tmp_path / "project", files)
    assert run("apply", "--no-scaffold", root).exit_code == 0
    return root


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "--workload", "nowhere.py:workload"], "there is no nowhere.py in "),
        (
            ["verify", "-k", "xyz"],
            "-k 'xyz' matches none of 1 entry point: training_utils.train (see `chirp-migrate verify --list`).",
        ),
        (["verify", "--data", "notes.txt"], "notes.txt cannot be read as NumPy arrays (it is not an .npz file)"),
        (["verify", "--baseline", "notes.txt"], "--baseline notes.txt is a file: pass the folder"),
        (["verify", "--baseline", "elsewhere"], "found no training in the folder "),
        (["tune", "--dataset", "not a name"], "must name a function or class as"),
        (["tune", "--config", "utils"], "utils cannot be read (Is a directory)"),
    ],
)
def test_it_is_said_before_anything_runs(project: Path, arguments: list[str], said: str) -> None:
    done = run(*arguments, ".", cwd=project)
    assert said in sentence(done) and done.exit_code == 2 and "side1" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "--model", "utils.model:Bird"], "PATH has no module utils.model"),
        pytest.param(
            ["verify", "--model", "utils.models:Brid"],
            "utils.models has no class Brid; did you mean Bird?",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            ["verify", "--model", "utils.models:torch"],
            "utils.models:torch is no class; it has Bird.",
            marks=pytest.mark.exhaustive,
        ),
        (["verify", "--workload", "work.py:xyz"], "work.py has no function xyz; it has workload, Samples."),
        pytest.param(
            ["verify", "--workload", "nowhere:workload"],
            "PATH has no module nowhere; its mod",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            ["tune", "--workload", "work:xyz"],
            "work has no function xyz; it has workload, Samples.",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            ["tune", "--workload", "utils.nowhere:workload"],
            "PATH has no module utils.nowhere",
            marks=pytest.mark.exhaustive,
        ),
        (["tune", "--dataset", "work:Sampels"], "work has no function or class Sampels; did you mean Samples?"),
        (["tune", "--dataset", "work:Samples"], "work:Samples cannot be called without arguments (missing a required"),
    ],
)
def test_what_only_the_project_s_code_shows_is_said_with_what_it_has(
    project: Path, arguments: list[str], said: str
) -> None:
    done = run(*arguments, ".", cwd=project)
    *_, last = done.stderr.splitlines()  # after the progress
    assert last.startswith("chirp-migrate: ") and said in last
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["apply", "--plan"],
        ["apply", "--check-with"],
        ["apply", "--json"],
        ["plan", "-o"],
        ["plan", "--select"],
        ["report", "-o"],
        ["review", "--plan"],
        ["rollback", "--run"],
        ["verify", "--baseline"],
        ["verify", "--data"],
        ["verify", "--model"],
        ["verify", "--workload"],
        ["tune", "--config"],
        ["tune", "--dataset"],
        ["tune", "--plot"],
        ["tune", "--profile"],
        ["tune", "--unaugmented"],
        ["tune", "--workload"],
    ],
)
def test_a_variable_of_the_shell_that_is_not_set_names_nothing(project: Path, arguments: list[str]) -> None:
    done = run(*arguments, "", ".", cwd=project)
    command, option = arguments
    assert done.exit_code == 2 and option in sentence(done), sentence(done)
    assert f"See `chirp-migrate {command} --help`." in sentence(done)


@pytest.mark.slow
def test_a_budget_without_room_is_one(project: Path) -> None:
    done = run("verify", "--time-budget", "0", "--max-rounds", "4", ".", cwd=project)
    assert done.exit_code in (10, 11) and "verify detected no loader in the training" in done.stdout.lower(), (
        done.output
    )


def test_a_revision_that_is_not_there(project: Path) -> None:
    subprocess.run(["git", "init", "-q", project], check=True)
    done = run("verify", "--baseline", "xyz", "--list", ".", cwd=project)
    assert done.exit_code == 2 and "neither a folder nor a git revision" in sentence(done)

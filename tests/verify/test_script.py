"""A command after ``--``: the user's own script is watched, ended after enough epochs, and is told nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import run

from chirp_migrate.cli.verify import verify
from chirp_migrate.training.errors import NoSuchObject
from chirp_migrate.training.workload.script import Script, prepare_script, script_of_command

TRAIN = """
import argparse
from pathlib import Path
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    epochs = parser.parse_args().epochs
    if list(Path("out").glob("*")):
        raise FileExistsError("out has files of another run")
    Path("out").mkdir(exist_ok=True)
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 2), torch.nn.CrossEntropyLoss()
    dataset = TensorDataset(torch.rand(20, 4), torch.arange(20) % 2)
    loader = DataLoader(dataset, batch_size=8, shuffle=True{options})
    for epoch in range(epochs):
        for x, y in loader:
            loss(model(x), y).backward()
        open("out/epochs.txt", "a").write("x")
    raise RuntimeError("a training of so many epochs would not end in time")

if __name__ == "__main__":
    main()
"""
QUICK = ("--threads", "1", "--max-rounds", "3")


def project(folder: Path, options: str = "") -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN.replace("{options}", options))
    return folder


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("python train.py --lr 0.1", Script("train.py", "", ("--lr", "0.1"))),
        ("/usr/bin/python3.12 -u scripts/train.py", Script("scripts/train.py", "", ())),
        ("python -m pack.train -m x", Script("", "pack.train", ("-m", "x"))),
    ],
)
def test_how_a_script_is_named(words: str, script: Script) -> None:
    assert script_of_command(words.split()) == script


@pytest.mark.parametrize("words", ["", "torchrun train.py", "python", "python -c pass", "./train.py"])
def test_what_is_no_python_script_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"after -- must .*`python FILE\.py"):
        script_of_command(words.split())


def test_a_script_runs_as_the_main_program_and_leaves_the_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside_script.py").write_text("VALUE = 3\n")
    (tmp_path / "main.py").write_text(
        "import sys\nimport beside_script\n"
        "def typed(x: int): ...\n"
        "assert typed.__annotations__ == {'x': int} and sys.modules['__main__'].typed is typed\n"
        "open('seen', 'w').write(f'{__name__} {sys.argv} {beside_script.VALUE} {__file__}')\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    argv, path = list(sys.argv), list(sys.path)
    prepare_script(["python", "main.py", "0"])()
    assert (tmp_path / "seen").read_text() == f"__main__ ['main.py', '0'] 3 {tmp_path / 'main.py'}"
    with pytest.raises(SystemExit):
        prepare_script(["python", "main.py", "2"])()
    assert (sys.argv, sys.path) == (argv, path)


def test_a_module_that_fails_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imports_other.py").write_text("import such_module_is_missing\n")
    with pytest.raises(ModuleNotFoundError, match="such_module_is_missing"):
        prepare_script(["python", "-m", "imports_other"])()
    with pytest.raises(NoSuchObject, match=r"no module imports_others; did you mean imports_other\?"):
        prepare_script(["python", "-m", "imports_others"])()


@pytest.mark.slow
def test_a_script_of_any_length_is_verified_without_a_file_for_it(tmp_path: Path) -> None:
    before, after = project(tmp_path / "before"), project(tmp_path / "after")
    report = tmp_path / "report.json"
    words = ("--", "python", "train.py", "--epochs", "100000")
    result = run("verify", after, "--baseline", before, *QUICK, "--json", report, *words)
    values = json.loads(report.read_text())
    assert result.exit_code in (0, 10, 11, 12), result.output
    assert values["differences"] == [] and values["workload"]["source"] == "script"
    assert values["workload"]["command"] == ["python", "train.py", "--epochs", "100000"]
    assert [(one["role"], one["samples"]) for one in values["passes"]["after"]["train.py"]] == [("train", 20)] * 2
    own = values["own_runs"]["train.py"]
    assert (own["epochs"], own["assumed"]) == (100, True)
    assert sum(len(each["visits"]["before"]["train.py"]["epochs_s"]) for each in values["rounds"]["made"]) >= 3
    assert "the script runs in a copy of each version" in result.stderr
    assert not (after / "out").exists()


FUNCTIONAL = (
    TRAIN.replace("{options}", "")
    .replace(
        "            loss(model(x), y).backward()\n",
        "            torch.nn.functional.cross_entropy(model(x), y).backward()\n            optimizer.step()\n",
    )
    .replace("    dataset =", "    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n    dataset =")
)


def compare_versions(folder: Path, before: str, after: str) -> tuple[Any, str]:
    """Verify a script against an older version, in too little time for rounds: the JSON document, and the output."""
    for name, code in (("before", before), ("after", after)):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(code)
    report = folder / "report.json"
    options = ("--baseline", folder / "before", *QUICK, "--time-budget", "0", "--json", report)
    result = run("verify", folder / "after", *options, "--", "python", "train.py", "--epochs", "9")
    return json.loads(report.read_text()), " ".join(result.stdout.split())


@pytest.mark.slow
def test_losses_that_no_loss_module_computes_are_compared(tmp_path: Path) -> None:
    found, _ = compare_versions(tmp_path, FUNCTIONAL, FUNCTIONAL.replace("0.1)", "0.11)"))
    (difference,) = found["differences"]
    assert difference["name"] == "losses-differ" and "train pass 1: loss 2 is " in difference["message"]


OWN_SEED = ("manual_seed(0)", "manual_seed(torch.Generator().seed())")
OWN_MODEL = (
    "    optimizer =",
    "    model.weight.data.normal_(generator=(own := torch.Generator(), own.seed())[0])\n    optimizer =",
)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "what"), [(OWN_SEED, "batches and losses"), (OWN_MODEL, "losses")])
def test_a_training_that_draws_its_own_seed_is_compared_by_its_distribution(
    tmp_path: Path, change: tuple[str, str], what: str
) -> None:
    code = FUNCTIONAL.replace(*change)
    found, shown = compare_versions(tmp_path, code, code)
    assert (found["differences"], found["unrepeatable"]) == ([], ["train.py"])
    assert f"train.py: {what} differ even between two runs before the migration" in found["notes"][0]
    assert "1 entry point in distribution" in shown and "last bit" not in shown


@pytest.mark.slow
def test_a_training_that_draws_its_own_seed_must_keep_its_samples(tmp_path: Path) -> None:
    code = FUNCTIONAL.replace(*OWN_SEED)
    found, _ = compare_versions(tmp_path, code, code.replace("shuffle=True", "shuffle=True, drop_last=True"))
    assert [one["name"] for one in found["differences"]] == ["training-drops-samples"]


@pytest.mark.slow
def test_a_script_may_change_its_working_directory(tmp_path: Path) -> None:
    code = FUNCTIONAL.replace("    torch.manual_seed", "    os.chdir('out')\n    torch.manual_seed").replace(
        "out/ep", "ep"
    )
    found, _ = compare_versions(tmp_path, *[f"import os\n{code}"] * 2)
    assert (found["verdict"], found["differences"]) == ("not shown to be faster", [])


LAUNCHER = "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)\n"


@pytest.mark.slow
def test_a_program_that_another_process_trains_is_timed_as_a_whole(tmp_path: Path) -> None:
    before, after = project(tmp_path / "before"), project(tmp_path / "after")
    for root in (before, after):
        (root / "launch.py").write_text(LAUNCHER)
        fails_with_a_file_of_another_run = "open('short.txt', 'x').write('x')\n"
        log = f"open({str(tmp_path / 'order.txt')!r}, 'a').write({root.name[0]!r})\n"
        (root / "short.py").write_text(fails_with_a_file_of_another_run + log)
    report, words = tmp_path / "report.json", ("--", "python", "launch.py")
    result = run("verify", after, "--baseline", before, *QUICK, "--json", report, *words, "short.py")
    values = json.loads(report.read_text())
    assert result.exit_code in (10, 12), result.output
    assert values["differences"] == [] and values["passes"]["after"]["launch.py"] == []
    own = values["own_runs"]["launch.py"]
    assert (own["epochs"], own["epoch_s"]) == (0, {}) and own["start_s"]["after"] > 0
    assert values["described"]["compared"].startswith("verify detected no loader")
    assert not (after / "short.txt").exists()
    timed = (tmp_path / "order.txt").read_text()[-2 * len(values["rounds"]["made"]) :]
    assert set(timed[:2]) == {"a", "b"} and timed[2:4] == timed[1::-1], "the second round has the opposite order"
    failing = [str(after), "--baseline", str(before), *QUICK, *words, "train.py", "--epochs", "1"]
    failed = CliRunner().invoke(verify, failing)
    assert failed.exit_code == 14 and "launch.py raised SystemExit: 1" in " ".join(failed.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "tune"])
def test_the_message_of_a_script_that_refuses_its_arguments_is_shown(tmp_path: Path, command: str) -> None:
    before, root = project(tmp_path / "before"), project(tmp_path / "project")
    options = ("--baseline", before) if command == "verify" else ()
    result = run(command, root, *options, "--", "python", "train.py", "--lr", "3")
    assert result.exit_code == 14
    assert "train.py: error: unrecognized arguments: --lr 3" in result.stderr and "SystemExit: 2" in result.output
    assert "runner.py" not in result.stderr


@pytest.mark.slow
def test_a_script_that_trains_on_less_is_named(tmp_path: Path) -> None:
    before, after = project(tmp_path / "before"), project(tmp_path / "after", ", drop_last=True")
    result = run("verify", after, "--baseline", before, *QUICK, "--", "python", "train.py", "--epochs", "9")
    assert result.exit_code == 13
    assert "train.py: train pass 1: 20 samples before, 16 after" in " ".join(result.stdout.split())


def test_loading_problems_that_were_seen_are_counted_last(tmp_path: Path) -> None:
    before, after = project(tmp_path / "before"), project(tmp_path / "after", ", drop_last=True")
    for root in (before, after):
        text = (
            (root / "train.py")
            .read_text()
            .replace("        for x, y", "        torch.manual_seed(7)\n        for x, y")
        )
        (root / "train.py").write_text(text)
    report, words = tmp_path / "report.json", ("--", "python", "train.py", "--epochs", "9")
    result = run("verify", after, "--baseline", before, *QUICK, "--json", report, *words)
    assert result.exit_code == 13
    command = f"chirp-migrate doctor {after} -- python train.py --epochs 9"
    assert " ".join(result.stdout.split()).endswith(f"Doctor: 1 problem (order). See it with: {command}")
    (problem,) = json.loads(report.read_text())["problems"]
    assert (problem["check"], problem["entry_points"]) == ("order", ["train.py"])


@pytest.mark.parametrize(
    ("options", "words", "told"),
    [
        ((), ("torchrun", "train.py"), "to run another program, write a Python script that starts it"),
        ((), ("python", "nowhere.py"), "there is no nowhere.py"),
        ((), ("python", "-m", "nowhere"), "PATH has no module nowhere; its"),
        (("--workload", "a.py:b"), ("python", "train.py"), "defines the whole training"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    options: tuple[str, ...], words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    root = project(tmp_path / "after")
    result = run("verify", root, "--baseline", project(tmp_path / "before"), *options, "--", *words)
    assert result.exit_code == 2 and told in result.stderr.splitlines()[-1]
    assert result.stderr.count("chirp-migrate: ") == 1


@pytest.mark.slow
def test_tune_measures_the_loaders_of_a_script(tmp_path: Path) -> None:
    report = tmp_path / "tune.json"
    root = project(tmp_path / "project")
    asked = ("--num-workers", "0", "--time-budget", "1", "--no-save", "--json", report)
    result = run("tune", root, *asked, "--", "python", "train.py", "--epochs", "100000")
    assert result.exit_code == 0, result.output
    (loader,) = json.loads(report.read_text())["loaders"]
    assert (loader["name"], loader["batch_size"], loader["samples"]) == ("TensorDataset", 8, 20)

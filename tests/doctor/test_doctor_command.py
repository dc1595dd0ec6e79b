"""``chirp-migrate doctor`` from the command line: scripts, entry points that fail, documents and exit codes."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from support import copy_of, run, sentence, snapshot, write_files

STREAM = """
import torch
from torch.utils.data import DataLoader, IterableDataset

class Rows(IterableDataset):
    def __iter__(self):
        return iter(torch.eye(8).unbind())

def main():
    model = torch.nn.Linear(8, 1)
    for epoch in range({epochs}):
        for x in DataLoader(Rows(), batch_size=2, num_workers={workers}):
            model(x).sum().backward()
        open("epochs.txt", "a").write("x")
    {end}

if __name__ == "__main__":
    main()
"""

SLOW = """
import os
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    read = 0

    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.03)
        Slow.read += 1
        {after}
        return torch.rand(4)

def main():
    model, loader = torch.nn.Linear(4, 1), DataLoader(Slow(), batch_size=2, shuffle=True)
    for epoch in range(3):
        for x in loader:
            model(x).sum().backward()

if __name__ == "__main__":
    main()
"""

AHEAD = """
import queue
import threading
import torch
from torch.utils.data import DataLoader, TensorDataset

def ahead(loader):
    batches = queue.Queue(2)
    def load():
        for batch in loader:
            batches.put(batch)
        batches.put(None)
    threading.Thread(target=load, daemon={daemon}).start()
    return iter(batches.get, None)

def main():
    model, loader = torch.nn.Linear(8, 1), DataLoader(TensorDataset(torch.rand(32, 8)), batch_size=4, shuffle=True)
    for epoch in range(100_000):
        for (x,) in ahead(loader):
            model(x).sum().backward()

main()
"""

CALLS = """
import os
import signal
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

def trains():
    for (x,) in DataLoader(TensorDataset(torch.rand(8, 2)), batch_size=4):
        pass

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def fails():
    raise ValueError("no such bird")

def workload(sizes):
    return {"first": trains, "fails": fails, "killed": killed, "last": trains}
"""


def script(folder: Path, *, epochs: int = 1000, workers: int = 2, end: str = "") -> Path:
    return write_files(folder / "project", {"train.py": STREAM.format(epochs=epochs, workers=workers, end=end)})


def test_a_script_of_any_length_is_ended_after_two_epochs_and_changes_nothing(tmp_path: Path) -> None:
    root, sarif = script(tmp_path), tmp_path / "doctor.sarif"
    before = snapshot(root)
    result = run("doctor", root, "--sarif", sarif, "--json", tmp_path / "doctor.json", "--", "python", "train.py")
    assert result.exit_code == 1
    lines = " ".join(result.stdout.split())
    assert lines.startswith("train.py:5: Every worker process delivers the same samples of Rows")
    assert "Seen: 2 workers delivered 16 samples" in lines and "Fix: Divide the samples" in lines
    assert lines.endswith("Doctor: 1 problem in 1 entry point.")
    assert snapshot(root) == before
    (one,) = json.loads((tmp_path / "doctor.json").read_text())["entry_points"]
    assert (one["passes"], one["batches"], one["error"]) == (2, 16, "")
    (result_of_sarif,) = json.loads(sarif.read_text())["runs"][0]["results"]
    place = result_of_sarif["locations"][0]["physicalLocation"]
    assert result_of_sarif["ruleId"] == "duplicated-samples"
    assert (place["artifactLocation"]["uri"], place["region"]) == ("train.py", {"startLine": 5})


@pytest.mark.slow
def test_only_the_document_is_printed_where_a_program_reads_it(tmp_path: Path) -> None:
    result = run("doctor", script(tmp_path, epochs=2), "--sarif", "-", "--", "python", "train.py")
    assert [one["ruleId"] for one in json.loads(result.stdout)["runs"][0]["results"]] == ["duplicated-samples"]
    assert "Doctor: 1 problem in 1 entry point." in result.stderr


def test_two_documents_are_not_written_to_the_same_place(tmp_path: Path) -> None:
    result = run("doctor", script(tmp_path), "--json", "-", "--sarif", "-", "--", "python", "train.py")
    assert result.exit_code == 2 and "--json and --sarif name the same file" in sentence(result)


@pytest.mark.slow
@pytest.mark.parametrize("daemon", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_a_thread_that_loads_ahead_does_not_keep_a_script_from_its_end(tmp_path: Path, daemon: bool) -> None:
    root = write_files(tmp_path / "project", {"train.py": AHEAD.format(daemon=daemon)})
    result = run("doctor", root, "--time-budget", 120, "--json", "-", "--", "python", "train.py")
    assert result.exit_code == 0
    (one,) = json.loads(result.stdout)["entry_points"]
    assert one["error"] == "" and 2 <= one["passes"] <= 4


@pytest.mark.slow
def test_a_training_call_may_parse_its_arguments(tmp_path: Path) -> None:
    train = STREAM.format(epochs=2, workers=0, end="").replace(
        "    model =", "    ArgumentParser().parse_args()\n    model ="
    )
    calls = "import train\n\ndef workload(sizes):\n    return {'main': train.main}\n"
    files = {"train.py": f"from argparse import ArgumentParser\n{train}", "chirp_verify.py": calls}
    result = run("doctor", write_files(tmp_path / "project", files))
    assert result.exit_code == 0 and "no problems in 1 entry point" in result.stdout


def test_each_training_call_begins_in_the_folder_of_the_project(tmp_path: Path) -> None:
    train = STREAM.format(epochs=2, workers=0, end="").replace("    model =", "    os.chdir('data')\n    model =")
    calls = "import train\n\ndef workload(sizes):\n    return {'first': train.main, 'second': train.main}\n"
    files = {"train.py": f"import os\n{train}", "chirp_verify.py": calls, "data/rows.txt": ""}
    result = run("doctor", write_files(tmp_path / "project", files))
    assert result.exit_code == 0 and "no problems in 2 entry points" in result.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_the_script_forks_reports_nothing(tmp_path: Path) -> None:
    script = STREAM.format(epochs=9, workers=0, end="").replace("    model =", "    os.fork()\n    model =")
    (tmp_path / "train.py").write_text(f"import os\n{script}")
    result = run("doctor", tmp_path, "--", "python", "train.py")
    assert result.exit_code == 0 and "no problems in 1 entry point" in result.stdout


def test_a_training_without_problems_ends_with_0(tmp_path: Path) -> None:
    result = run("doctor", script(tmp_path, workers=1), "--", "python", "train.py")
    assert (result.exit_code, result.stdout.strip()) == (0, "Doctor: no problems in 1 entry point.")


@pytest.mark.slow
def test_a_script_that_waits_at_its_end_was_examined_and_nothing_is_measured(tmp_path: Path) -> None:
    root = script(tmp_path, epochs=2, workers=1, end="import atexit, time; atexit.register(time.sleep, 1000)")
    result = run("doctor", root, "--time-budget", 60, "--", "python", "train.py")
    assert (result.exit_code, result.stdout.strip()) == (0, "Doctor: no problems in 1 entry point.")
    assert "measured" not in result.stderr


@pytest.mark.slow
def test_workers_that_are_not_forked_find_the_script(tmp_path: Path) -> None:
    root = script(tmp_path, workers=1)
    text = (root / "train.py").read_text().replace("num_workers=1", "num_workers=1, multiprocessing_context='spawn'")
    (root / "train.py").write_text(text)
    result = run("doctor", root, "--", "python", "train.py")
    assert (result.exit_code, result.stdout.strip()) == (0, "Doctor: no problems in 1 entry point.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "printed"),
    [
        pytest.param(
            "Slow.read > 80 and os._exit(3)",
            "the best number of workers was not measured: the process ended with exit code 3",
            marks=pytest.mark.exhaustive,
        ),
        (
            "assert Slow.read <= 80, 'read too often'",
            "the best number of workers for train.py was not measured: read too often",
        ),
    ],
)
def test_the_report_is_there_if_numbers_of_workers_cannot_be_measured(tmp_path: Path, after: str, printed: str) -> None:
    root = write_files(tmp_path / "project", {"train.py": SLOW.format(after=after)})
    result = run("doctor", root, "--", "python", "train.py")
    assert result.exit_code == 1 and "`chirp-migrate tune` measures which number" in " ".join(result.stdout.split())
    assert printed in " ".join(result.stderr.split())


HAS_FORKSERVER = "forkserver" in multiprocessing.get_all_start_methods()


def unforked(folder: Path, method: str, guard: str, rows: str = "iter(torch.eye(8).unbind())") -> Path:
    text = STREAM.format(epochs=2, workers=1, end="").replace('if __name__ == "__main__":\n    ', guard)
    text = text.replace("num_workers=1", f"num_workers=1, multiprocessing_context={method!r}")
    return write_files(folder / "project", {"train.py": text.replace("iter(torch.eye(8).unbind())", rows)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("spawn", ("python", "train.py")),
        pytest.param(
            "forkserver",
            ("python", "-m", "train"),
            marks=[
                pytest.mark.exhaustive,
                pytest.mark.skipif(not HAS_FORKSERVER, reason="this system has no fork server"),
            ],
        ),
    ],
)
def test_a_script_without_a_guard_is_named(tmp_path: Path, method: str, words: tuple[str, ...]) -> None:
    result = run("doctor", unforked(tmp_path, method, ""), "--", *words)
    assert result.exit_code == 1
    lines = " ".join(result.stdout.split())
    assert lines.startswith("train.py:17: Importing the script starts the training. So a worker process, which imports")
    assert f"of the loader at train.py:12 began. Workers that start with {method} import the script" in lines
    assert "[unguarded-main]" in lines
    assert "Doctor: 1 problem in 1 entry point (1 failed)." in lines


@pytest.mark.slow
def test_workers_that_start_longer_than_the_time_lasts_give_one_batch(tmp_path: Path) -> None:
    root, document = unforked(tmp_path, "spawn", 'if __name__ == "__main__":\n    '), tmp_path / "doctor.json"
    result = run("doctor", root, "--time-budget", 1, "--json", document, "--", "python", "train.py")
    (one,) = json.loads(document.read_text())["entry_points"]
    assert result.exit_code == 0 and one["batches"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "guard",
    [
        'if __name__ == "__main__":\n    ',
        pytest.param(
            "import multiprocessing\nmultiprocessing.current_process().name == 'MainProcess' and ",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_workers_that_began_before_the_run_fails_imported_the_script(tmp_path: Path, guard: str) -> None:
    root = unforked(tmp_path, "spawn", guard, rows="__import__('os')._exit(3)")
    result = run("doctor", root, "--", "python", "train.py")
    assert result.exit_code == 14 and "exited unexpectedly" in result.stderr


@pytest.mark.slow
def test_a_worker_that_ends_for_another_reason_is_no_script_without_a_guard(tmp_path: Path) -> None:
    root = script(tmp_path, workers=1)
    text = (root / "train.py").read_text().replace("return iter(torch.eye(8).unbind())", "import os; os._exit(3)")
    (root / "train.py").write_text(text)
    result = run("doctor", root, "--", "python", "train.py")
    assert result.exit_code == 14 and "exited unexpectedly" in result.stderr


@pytest.mark.slow
def test_a_script_that_fails_before_any_problem_ends_with_14(tmp_path: Path) -> None:
    root = script(tmp_path, epochs=1, workers=1, end='raise ValueError("no such bird")')
    result = run("doctor", root, "--", "python", "train.py")
    assert result.exit_code == 14
    assert result.stderr.endswith("chirp-migrate: train.py failed: ValueError: no such bird.\n")
    printed = result.stderr.split("last lines that the project's code printed")[1]
    assert "line 15, in main" in printed and str(root) not in printed and "runner.py" not in printed


def test_the_message_of_a_script_that_refuses_its_arguments_is_shown(tmp_path: Path) -> None:
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', required=True)\n"
    root = write_files(tmp_path / "project", {"train.py": f"{text}parser.parse_args()\n"})
    result = run("doctor", root, "--", "python", "train.py")
    assert result.exit_code == 14
    assert "error: the following arguments are required: --data" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("sys.exit(3)", "train.py failed: exit code 3."),
        ("sys.exit('no such bird')", "train.py failed: no such bird."),
        ("os._exit(3)", "train.py failed: the process ended with exit code 3 and returned no result."),
        ("raise KeyboardInterrupt", "train.py failed: KeyboardInterrupt."),
        ("import cv2.nowhere", "pip install opencv-python"),
        ("input('Which bird?')", "train.py failed: EOFError: EOF when reading a line."),
    ],
)
def test_how_a_script_ends_is_one_sentence(tmp_path: Path, end: str, message: str) -> None:
    root = write_files(tmp_path / "project", {"train.py": f"import os, sys\nprint('last words', flush=True)\n{end}\n"})
    result = run("doctor", root, "--", "python", "train.py")
    assert result.exit_code == 14 and message in result.stderr.splitlines()[-1]
    assert result.stderr.count(message) == 1


@pytest.mark.slow
def test_the_error_of_a_worker_is_named(tmp_path: Path) -> None:
    root = script(tmp_path, workers=1)
    text = (root / "train.py").read_text().replace("iter(torch.eye(8).unbind())", "iter(torch.eye(8)[9])")
    (root / "train.py").write_text(text)
    result = run("doctor", root, "--", "python", "train.py")
    assert result.exit_code == 14
    assert "worker process 0. … IndexError: index 9 is out of bounds" in result.stderr.splitlines()[-1]


SHORTENED = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        time.sleep(0.2)
        return torch.rand(4)

model, loader = torch.nn.Linear(4, 1), DataLoader(Slow())
assert sum(model(x).sum().backward() is None for x in loader) == len(loader), "no metrics"
"""


@pytest.mark.slow
def test_an_error_after_an_epoch_that_doctor_ended_early_says_so(tmp_path: Path) -> None:
    root = write_files(tmp_path / "project", {"train.py": SHORTENED})
    result = run("doctor", root, "--time-budget", 2, "--", "python", "train.py")
    assert result.exit_code == 14
    early = "(doctor ended an epoch early, which may be the cause: use a longer --time-budget)"
    assert result.stderr.endswith(f"chirp-migrate: train.py failed: AssertionError: no metrics {early}.\n")


@pytest.mark.parametrize("text", ["print('nothing')", "sys.exit()", "print(len(DataLoader(range(8))))"])
def test_a_script_that_takes_no_batch_was_not_checked(tmp_path: Path, text: str) -> None:
    start = "import sys\nfrom torch.utils.data import DataLoader\n"
    root = write_files(tmp_path / "project", {"train.py": start + text + "\n"})
    result = run("doctor", root, "--", "python", "train.py")
    assert result.exit_code == 2
    message = "the training read no batch from a PyTorch loader, so nothing was checked: pass a script that trains."
    assert result.stderr.endswith(f"chirp-migrate: {message}\n")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["{root}/train.py", "../project/train.py"])
def test_the_script_of_the_copy_runs_although_its_path_names_the_project(tmp_path: Path, path: str) -> None:
    root = script(tmp_path, epochs=2, workers=1)
    text = (root / "train.py").read_text().replace('open("epochs.txt"', 'open(__file__ + ".txt"')
    (root / "train.py").write_text(text)
    before = snapshot(root)
    result = run("doctor", root, "--", "python", path.format(root=root))
    assert (result.exit_code, result.stdout.strip()) == (0, "Doctor: no problems in 1 entry point.")
    assert snapshot(root) == before


@pytest.mark.slow
def test_entry_points_that_fail_or_end_their_process_are_named_and_block_no_other(tmp_path: Path) -> None:
    root, document = write_files(tmp_path / "project", {"chirp_verify.py": CALLS}), tmp_path / "doctor.json"
    result = run("doctor", root, "--json", document)
    ran = {one["label"]: (one["error"], one["batches"]) for one in json.loads(document.read_text())["entry_points"]}
    assert result.exit_code == 0
    assert ran["first"] == ran["last"] == ("", 2)
    assert ran["fails"] == ("ValueError: no such bird", 0)
    assert "SIGKILL" in ran["killed"][0]
    assert "Doctor: no problems in 4 entry points (2 failed)." in result.stdout


@pytest.mark.slow
@pytest.mark.exhaustive  # it waits; tests of child processes have the end, too
def test_an_entry_point_without_end_is_ended_within_the_time_budget(tmp_path: Path) -> None:
    calls = CALLS.replace("os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(1000)")
    root, document = write_files(tmp_path / "project", {"chirp_verify.py": calls}), tmp_path / "doctor.json"
    result = run("doctor", root, "--time-budget", 8, "-k", "first or killed", "--json", document)
    ran = {one["label"]: one["error"] for one in json.loads(document.read_text())["entry_points"]}
    assert result.exit_code == 0 and ran["first"] == "" and "did not end within" in ran["killed"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "has no utils/ folder"),
        (("--", "torchrun", "train.py"), "torchrun is not Python"),
        (("--", "torchrun", "train.py"), "to run another program, write a Python script that starts it"),
        (("--", "python", "nowhere.py"), "there is no nowhere.py"),
        (("--", "python", "../data.py"), "there is no ../data.py"),
        (("--", "python", "-m", "trian"), "PATH has no module trian; did you mean train?"),
        (("--", "python", "-m", "nowhere.train"), "PATH has no module nowhere.train"),
        (("--", "python", "-m", "package"), "PATH has no module package.__main__"),
        (("--workload", "nowhere.py:workload"), "there is no nowhere.py"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    root = write_files(script(tmp_path), {"package/__init__.py": "", "../data.py": "outside = True"})
    before, after = (arguments, ()) if arguments[:1] != ("--",) else ((), arguments)
    result = run("doctor", *before, root, *after)
    assert result.exit_code == 2 and problem in result.stderr and len(result.stderr.splitlines()) <= 2


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"scripts/fit.py": 'if __name__ == "__main__":\n    pass\n', "data.py": "N = 3\n"}, "python scripts/fit.py"),
        (
            {"fit.py": 'if __name__ == "__main__":\n    pass\n', "lr.py": "if '__main__' == __name__: pass\n"},
            "python train.py",
        ),
        ({"data.py": "NAME = __name__\n"}, "python train.py"),
    ],
)
def test_where_no_training_is_found_a_script_is_named(tmp_path: Path, files: dict[str, str], command: str) -> None:
    root = write_files(tmp_path / "project", files)
    for name in ("doctor", "tune"):
        message = sentence(run(name, root))
        assert f"run a script with `chirp-migrate {name} {root} -- {command}`" in message
        assert f"or run `chirp-migrate init-workload {root}`" in message


@pytest.mark.slow
def test_the_entry_points_of_a_backend_are_found(tmp_path: Path) -> None:
    root, document = copy_of("backend", tmp_path / "backend"), tmp_path / "doctor.json"
    assert run("doctor", root, "--json", document).exit_code == 0
    found = json.loads(document.read_text())
    assert len(found["entry_points"]) > 5 and not [one for one in found["entry_points"] if one["error"]]
    assert found["problems"] == []


@pytest.mark.slow
@pytest.mark.exhaustive  # migrated code has the same loaders
def test_problems_are_seen_in_migrated_code_too(tmp_path: Path) -> None:
    root, document = copy_of("doctor", tmp_path / "doctor"), tmp_path / "doctor.json"
    assert run("apply", root, "--all-loaders").exit_code == 0
    seen = {
        "order_epoch_never_set": ["order"],
        "overlap_validation_in_training": ["overlap"],
        "statistics_of_all_columns": ["statistics-of-all"],
        "stream_not_divided": ["duplicated-samples"],
        "validation_augmented_by_shared_dataset": ["validation-varies"],
        "validation_of_training_data": [],
    }
    run("doctor", root, "-k", " or ".join(seen), "--json", document)
    problems = json.loads(document.read_text())["problems"]
    for program, checks in seen.items():
        assert [one["check"] for one in problems if program in one["entry_points"]] == checks

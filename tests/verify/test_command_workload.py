"""A command as the workload: filled in, run in the copy, its exit code and result file looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from chirp_migrate.training.errors import TaskNotPossible
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, EntryPoint, WorkloadSizes
from chirp_migrate.training.workload.shell import run_command

WRITE = "import sys, json; json.dump({'loss': 0.5, 'epochs': sys.argv[1:]}, open('out.json', 'w'))"


def command(*words: str, result: str = "") -> EntryPoint:
    return EntryPoint("", "command", command=words, result=result)


@pytest.fixture(autouse=True)
def in_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_sizes_are_filled_in_and_the_result_is_read(tmp_path: Path) -> None:
    entry = command("{python}", "-c", WRITE, "{epochs}", "{batch_size}", "[{data}]", "{other}", result="out.json")
    found = run_command(entry, WorkloadSizes(epochs=7, batch_size=9))
    assert found == {"exit code": 0, "result": {"loss": 0.5, "epochs": ["7", "9", "[]", "{other}"]}}


def test_a_result_that_is_not_json_is_compared_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "write.py").write_text("open('out.bin', 'wb').write(b'\\xff' * 3)")
    found = run_command(command("{python}", "write.py", result="out.bin"), WorkloadSizes())
    assert len(found["result"]) == 64


@pytest.mark.parametrize(
    "words, result, sentence",
    [
        (("{python}", "-c", "raise SystemExit(3)"), "", "the command ended with exit code 3"),
        (("no-such-program-anywhere",), "", "no-such-program-anywhere cannot be run"),
        (("{python}", "-c", "pass"), "out.json", "did not write out.json"),
    ],
)
def test_what_goes_wrong_is_said(tmp_path: Path, words: tuple[str, ...], result: str, sentence: str) -> None:
    (tmp_path / "out.json").write_text("{}")  # of an earlier run
    with pytest.raises(TaskNotPossible, match=sentence):
        run_command(command(*words, result=result), WorkloadSizes())


def test_the_report_says_that_a_command_is_not_looked_into() -> None:
    discovery = DiscoveredEntryPoints((command("make", "train", result="out.json"),))
    said = discovery.describe_comparison(saw_loaders=False)
    assert said is not None and "Only the exit code and out.json were compared" in said
    assert "`make train`" in discovery.describe(WorkloadSizes())

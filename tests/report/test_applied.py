"""What `apply` and `plan` print of findings: at which lines, and how much of their messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import run, write_files

PROGRAM = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def seed_all(worker_id):
    np.random.seed(0)


def seed_each(worker_id):
    np.random.seed(worker_id)


def build(data, labels, shift):
    def collate(batch):
        return torch.stack([x + shift for x, _ in batch]), torch.tensor([y for _, y in batch])

    return DataLoader(TensorDataset(data, labels), 8, True, num_workers=4, collate_fn=collate, worker_init_fn=seed_all)


def build_other(data, labels):
    return DataLoader(TensorDataset(data, labels), 8, num_workers=4, worker_init_fn=seed_each)


for batch in build(torch.rand(10, 2), torch.zeros(10), 3):
    print(batch)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two likely bugs in one file."""
    return write_files(tmp_path / "project", {"train.py": PROGRAM, "requirements.txt": "torch\n"})


def places(printed: str, code: str) -> list[int]:
    """The lines at which a report lists findings of a rule."""
    rows = re.findall(rf"{code}  train\.py:([\d, ]+):|{code} [\w ,-]+?  ([\d, ]+)$", printed, re.MULTILINE)
    return [int(number) for row in rows for number in "".join(row).split(",")]


def lines_with(text: str, *parts: str) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), 1) if any(part in line for part in parts)]


def test_a_plan_prints_lines_of_the_file_as_it_is(project: Path) -> None:
    printed = run("plan", project).stdout
    assert places(printed, "CHP001") == lines_with(PROGRAM, "return DataLoader")
    assert places(printed, "CHP017") == lines_with(PROGRAM, "np.random.seed")
    assert places(printed, "CHP012") == lines_with(PROGRAM, "def collate")


def test_after_apply_the_lines_are_those_of_the_new_file(project: Path) -> None:
    printed = run("apply", project).stdout
    after = (project / "train.py").read_text()
    loaders = lines_with(after, "OptimalDataLoaderFactory.create_")
    assert loaders != lines_with(PROGRAM, "return DataLoader")
    assert places(printed, "CHP001") == loaders
    assert places(printed, "CHP017") == lines_with(after, "np.random.seed")
    assert places(printed, "CHP012") == lines_with(after, "def _collate")


def test_after_apply_the_reason_of_a_gain_has_its_line_in_the_new_file(project: Path) -> None:
    printed = " ".join(run("apply", "-v", project).stdout.split())
    after = (project / "train.py").read_text()
    first, second = lines_with(after, "return OptimalDataLoaderFactory")
    found = re.findall(r"train\.py:(\d+)\)", printed)
    assert [int(line) for line in found] == [first, *lines_with(after, "def _collate"), second]


def test_each_call_is_listed_at_its_own_line_if_one_hunk_rewrites_all_calls(tmp_path: Path) -> None:
    build = "        return DataLoader(data, 3, collate_fn=collate, num_workers=1)\n"
    bodies = (
        "def double(x): return 2 * x\n        def collate(batch): return [double(x) for x in batch]",
        "import math\n        def collate(batch): return [math.floor(x) for x in batch]",
        "class Twice:\n            pass\n        def collate(batch): return [Twice() for x in batch]",
    )
    methods = "".join(f"    def load_{n}(self, data):\n        {body}\n{build}" for n, body in enumerate(bodies))
    program = f"from torch.utils.data import DataLoader\n\n\nclass Loaders:\n{methods}\nloaders = Loaders()\n"
    program += "print(*loaders.load_0([1]), *loaders.load_1([1]), *loaders.load_2([1]))\n"
    style = "[tool.black]\nline-length = 120\n"
    project = write_files(tmp_path / "project", {"train.py": program, "pyproject.toml": style})
    printed = run("apply", "--all-loaders", "-v", project).stdout
    after = (project / "train.py").read_text()
    found = re.findall(r"^(\d+) CHP001", printed, re.MULTILINE)
    assert [int(line) for line in found] == lines_with(after, "return OptimalDataLoader")


def test_every_likely_bug_is_shown_in_full(project: Path) -> None:
    for command in ("plan", "apply"):
        printed = run(command, project).stdout
        assert "(-v)" not in printed
        for seed in ("`np.random.seed(0)`", "`np.random.seed(worker_id)`"):
            assert seed in printed
        words = " ".join(printed.split())
        assert 'each worker runs this line again. Move the line under `if __name__ == "__main__":`' in words


def test_no_reason_is_cut_short(tmp_path: Path) -> None:
    program = (
        "from torch.utils.data import DataLoader\n\n\ndef train(dataset, batch_size):\n"
        "    labels = []\n    for i in range(len(dataset)):\n        labels.append(read(dataset)[i][1])\n"
        "    loaders = {}\n    loaders['a'] = build(DataLoader, dataset, batch_size, another_argument_of_this_call=1)\n"
        "    return loaders, labels\n"
    )
    project = write_files(tmp_path / "project", {"train.py": program})
    for columns in ("60", "100"):
        printed = run("plan", project, COLUMNS=columns).stdout
        assert "(-v)" not in printed
        assert "build the loader with `OptimalDataLoaderFactory.create_loader` by hand" in " ".join(printed.split())


def test_a_bug_whose_rewrite_is_opt_in_is_shown_where_it_is_not_rewritten(tmp_path: Path) -> None:
    program = (
        "from torch.utils.data import DataLoader, DistributedSampler\n\n\n"
        "def train(dataset, step):\n"
        "    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))\n"
        "    for _ in range(10):\n"
        "        for batch in loader:\n"
        "            step(batch)\n"
    )
    project = write_files(tmp_path / "project", {"train.py": program, "requirements.txt": "torch\n"})
    assert "CHP014  train.py:6" in run("plan", project).stdout

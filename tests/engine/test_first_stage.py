"""Words and ``ast`` decide which files LibCST reads: what a rule would find there always passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import RULES

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.rewrite_file import applicable_rules, rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.rules import Rule, all_rules
from chirp_migrate.syntax.class_headers import words_in_class_headers
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from qa.rule_cases import cases

FIXTURES = Path(__file__).parents[2] / "fixtures"
BACKENDS = ["grown_backend", "custom_loader_backend"]


@pytest.mark.parametrize("folder", [*(f"rules/{rule.code}" for rule in all_rules()), *BACKENDS])
def test_what_any_rule_finds_passes(folder: str) -> None:
    files = (FIXTURES / folder).glob("*.py") if folder.startswith("rules") else (FIXTURES / folder).rglob("*.py")
    texts = {one.relative_to(FIXTURES / folder).as_posix(): one.read_text(encoding="utf-8") for one in files}
    project = Project(texts)
    for path, text in texts.items():
        module = Module(path, text)
        finding = [rule for rule in all_rules() if any(True for _ in rule.check(module, project))]
        passing = applicable_rules(all_rules(), path, text, project)
        assert [rule.code for rule in finding if rule not in passing] == [], path


_LOADER = "from torch.utils.data import DataLoader\n"
_DATASET = "from torch.utils.data import Dataset\n"
_TRAINS = """\
def train(model, criterion, loader, device, total=0.0):
    for x, y in loader:
        loss = criterion(model(x.to(device)), y.to(device))
"""
_HOLDS = """\
class Clips(Dataset):
    def __init__(self, path):
        self.held = {}

    def __len__(self):
        return 9

    def __getitem__(self, idx):
        return self.held.read(idx)
"""
_STANDARDISES = """\
def standardise(dataset, ids, mean, std):
    samples = []
    for i in ids:
        x, y = dataset[i]
        x = x - mean
        x = x / std
        samples.append((x, y))
    return samples
"""
_EPOCHS = """\
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm


def train(dataset, step, epochs):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler)
    for epoch in {}:
        for batch in loader:
            step(batch)
"""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("CHP004", _STANDARDISES),
        ("CHP014", _EPOCHS.format("tqdm(\n        range(epochs),\n        desc='epochs',\n    )")),
        ("CHP014", _EPOCHS.format("\\\n        range(epochs)")),
        (
            "CHP016",
            _LOADER + "loader = DataLoader(d)\nwhile True:\n    print(next(  # the first\n        iter(loader)))\n",
        ),
        ("CHP018", "from h5py import File as Archive\n" + _DATASET + _HOLDS.format("Archive(path)")),
        ("CHP018", "from gzip import open as opened\n" + _DATASET + _HOLDS.format("opened(path)")),
        ("CHP018", _DATASET + _HOLDS.format("open (path)")),
        ("CHP020", _LOADER + "batches = [batch for batch in DataLoader(d, num_workers=2)]\n"),
        ("CHP020", _LOADER + "first = second = next(iter(DataLoader(d, num_workers=2)))\n"),
        ("CHP020", _LOADER + "found['first'] = next(iter(DataLoader(d, num_workers=2)))\n"),
        (
            "CHP023",
            "import torch\nfrom multiprocessing import Pool as Workers\n\n\ndef read(dataset, ids):\n"
            "    with Workers(3) as pool:\n        return torch.stack(pool.map(dataset.__getitem__, ids))\n",
        ),
        ("CHP025", _TRAINS + "        total += float(criterion(loss))\n"),
        ("CHP025", _TRAINS + "        total += float(\n            loss\n        )\n"),
        ("CHP025", _TRAINS + "        hits = (loss > 0).sum()\n        total += int(hits)\n"),
        (
            "CHP029",
            "from torch import stack as joined\n\n\nstacked = joined([dataset[i][0] for i in ids])\n",
        ),
        (
            "CHP029",
            "import torch\n\nstacked = torch.stack(  # all\n    [dataset[i][0] for i in ids])\n",
        ),
    ],
)
def test_what_is_spelled_in_another_way_passes(code: str, text: str) -> None:
    assert code in {finding.rule for finding in rewrite_text("a.py", text, Project({"a.py": text}), unsafe=True)[1]}


_BASE = """\
from torch.utils.data import Dataset as Base


class Clips(Base):
    def __init__(self, files, function=None):
        self.files, self.function = files, function

    def __len__(self):
        return len(self.files)

    def __getitem__(self, idx):
        return self.load(self.files[idx])


class Calls(Clips):
    pass
"""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "CHP006",
            "def make(shift):\n    class Shifted(Calls):\n        def load(self, file):\n            return shift\n",
        ),
        ("CHP007", "def make(files, scale):\n    return Calls(files, lambda x: x * scale)\n"),
        ("CHP011", "def labels(files):\n    calls = Calls(files)\n    return [y for _, y in calls]\n"),
        (
            "CHP012",
            "def make(files, n):\n    def scaled(x):\n        return x * n\n\n    return Calls(files, scaled)\n",
        ),
        (
            "CHP017",
            "import random\n\n\nclass Noisy(Calls):\n    def __init__(self, files):\n        super().__init__(files)\n"
            "        self.rng = random.Random(7)\n\n    def load(self, file):\n        return self.rng.random()\n",
        ),
        (
            "CHP018",
            "class Archive(Calls):\n    def __init__(self, files, path):\n        super().__init__(files)\n"
            "        self.file = open(path)\n\n    def load(self, file):\n        return self.file.read(file)\n",
        ),
        ("CHP019", "class Moved(Calls):\n    def load(self, file):\n        return file.cuda()\n"),
    ],
)
def test_a_class_of_another_file_is_a_dataset_whatever_it_is_called(code: str, text: str) -> None:
    text = f"from base import Calls\n\n\n{text}"
    found = rewrite_text("a.py", text, Project({"a.py": text, "base.py": _BASE}), unsafe=True)[1]
    assert code in {finding.rule for finding in found}


def test_a_class_goes_by_the_name_that_another_file_imported_it_as() -> None:
    text = (FIXTURES / "rules/CHP004/before.py").read_text(encoding="utf-8")
    plain = rewrite_text("a.py", text, Project({"a.py": text}))[1]
    text = text.replace("torch.utils.data import Dataset", "base import Base").replace("(Dataset)", "(Base)")
    renamed = rewrite_text(
        "a.py", text, Project({"a.py": text, "base.py": "from torch.utils.data import Dataset as Base\n"})
    )[1]
    assert [finding.rule for finding in renamed] == [finding.rule for finding in plain]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("CHP017", "def seeded(worker):\n    numpy.random.seed(7)\n\n\n{loader}0, seeded)\n"),
        ("CHP019", 'model.to("cuda")\n{loader}0, None, "fork")\n'),
        ("CHP020", "{loader}0)\nprint(list(val_loader))\n"),
    ],
)
def test_what_the_factory_is_given_by_name_is_seen_at_once(code: str, text: str) -> None:
    loader = "val_loader = DataLoader(d, 4, False, None, None, 2, None, False, False, "
    text = f"import numpy\nfrom torch.utils.data import DataLoader\n\n{text.format(loader=loader)}"
    after, found = rewrite_text("a.py", text, Project({"a.py": text}))
    assert code in {finding.rule for finding in found}
    again = {finding.rule for finding in rewrite_text("a.py", after, Project({"a.py": after}))[1]}
    assert again <= {finding.rule for finding in found}


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_what_ends_lines_decides_nothing(rule: Rule) -> None:
    text = (FIXTURES / "rules" / rule.code / "before.py").read_text(encoding="utf-8")

    def found(text: str) -> list[tuple[str, int, FindingStatus]]:
        findings = rewrite_text("a.py", text, Project({"a.py": text}), unsafe=True)[1]
        return [(finding.rule, finding.line, finding.status) for finding in findings]

    assert found(text.replace("\n", "\r")) == found(text)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("rules/*/before.py", marks=pytest.mark.slow),
        pytest.param("*backend/**/*.py", marks=[pytest.mark.slow, pytest.mark.exhaustive]),
        pytest.param("rules/*/*.py", marks=[pytest.mark.slow, pytest.mark.exhaustive]),
        pytest.param("cases", marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
def test_rules_that_are_not_asked_again_have_nothing_to_say(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {file.as_posix(): file.read_text(encoding="utf-8") for file in sorted(FIXTURES.glob(pattern))}
    if pattern == "cases":
        for rule in all_rules():
            for name, modules in cases(rule.code).items():
                texts |= {f"{rule.code}/{name}/{path}": text for path, text in modules.items()}
    assert texts

    def rewritten() -> list[object]:
        return [rewrite_text(path, text, Project({path: text}), unsafe=True) for path, text in texts.items()]

    asked_some = rewritten()
    for rule in all_rules():
        monkeypatch.setattr(type(rule), "in_place", False)
    assert asked_some == rewritten()


def test_a_file_that_no_rule_can_say_anything_about_does_not_pass() -> None:
    text = """\
from torch.utils.data import DataLoader, Dataset

def set_up(loader: DataLoader, ds: Dataset, transform=None) -> None:
    print(sorted(ds.names, key=lambda name: name.lower()))
"""
    assert applicable_rules(all_rules(), "a.py", text, Project({"a.py": text})) == ()


@pytest.mark.parametrize(
    "use",
    [
        "return DataLoader(dataset, collate_fn=collate)",
        "chosen = collate\n    return DataLoader(dataset, collate_fn=chosen)",
        "def batched(samples):\n        return collate(samples)\n\n    return DataLoader(dataset, collate_fn=batched)",
    ],
)
def test_a_default_that_goes_to_a_loader_passes(use: str) -> None:
    imports = "from torch.utils.data import DataLoader\n\n\n"
    text = f"{imports}def make(dataset, collate=lambda samples: samples):\n    {use}\n"
    assert "CHP007" in {one.rule for one in rewrite_text("a.py", text, Project({"a.py": text}))[1]}


def test_a_function_given_by_position_to_a_parameter_for_transforms_passes() -> None:
    text = """\
import torch


class Images:
    def __init__(self, files, transform):
        self.files, self.transform = files, transform


def make(files):
    def grey(image):
        return image.mean(0)

    return Images(files, grey)
"""
    assert "CHP012" in {one.rule for one in rewrite_text("a.py", text, Project({"a.py": text}))[1]}


def test_a_banner_in_a_comment_takes_no_longer_than_its_length(tmp_path: Path) -> None:
    # 2 to the 400 ways to take it apart, if a part of a comment could count as one: this would not end.
    banner = f"# All of it is read.\n{'#' * 400}\n"
    names = f"from shared import (  # {'# ' * 200}\n    name,\n"
    head = "from torch.utils.data import DataLoader\n\n"
    (tmp_path / "train.py").write_text(f"{head}{banner}\nx.to\nx.float(\n    1\n)\n")
    (tmp_path / "main.py").write_text(f'"""\n{names}"""\n{names})\nloader = DataLoader(name)\n')
    (tmp_path / "shared.py").write_text("name = [1, 2, 3]\n")
    assert plan_tree(tmp_path, jobs=1).skipped == ()


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("class C(A, b.B):", {"A", "b", "B"}),
        ("class C(A[T], B):", {"A", "[T", "B"}),
        ("class C[T: Sequence[int]](A):", {"A"}),
        ("class C(make(A), B):", {"make", "A", "B"}),
        ("class C(  # bases (1) :)\n    A,\n):", {"bases", "1", "A"}),
        ("class C(A", {"A"}),
        ("class C:", set()),
    ],
)
def test_the_bases_of_a_class_are_found_in_any_text(header: str, words: set[str]) -> None:
    text = f"{header}\n    x = f(y)\nclass D(E): ...\n"
    assert {word for word, name in words_in_class_headers(text) if name == "C"} >= words
    assert [word for word, name in words_in_class_headers(text) if name == "D"] == ["E"]
    assert {word for word, _ in words_in_class_headers(header)} == words


PASSING_LOADERS = (
    "from torch.utils.data import DataLoader\nfrom torch.utils.data.distributed import DistributedSampler\n\n\n"
    "def main(dataset, train):\n    data = DataLoader(dataset, sampler=DistributedSampler(dataset))\n"
    "    for epoch in range(3):\n        train({})\n"
)
CALLS = [
    "x: DataLoader(d) = 0",
    "def f() -> DataLoader(d): pass",
    "x: partial(DataLoader, batch_size=4)",
    "x: g(DataLoader)",
]
CAUGHT = ["try:\n    pass\nexcept E as isinstance:\n    ", "match d:\n    case {**isinstance}:\n        "]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        *(("CHP014", PASSING_LOADERS.format(given)) for given in ("data", "batches=data", "**data")),
        *(
            ("CHP001", f"from functools import partial\nfrom torch.utils.data import DataLoader\n{one}\n")
            for one in CALLS
        ),
        *(("CHP001", f"from torch.utils.data import DataLoader\n{one}isinstance(x, DataLoader)\n") for one in CAUGHT),
    ],
)
def test_odd_spellings_pass(code: str, text: str) -> None:
    project = Project({"main.py": text})
    module = project.module("main.py")
    (rule,) = (one for one in all_rules() if one.code == code)
    assert any(True for _ in rule.check(module, project))
    assert rule in applicable_rules(all_rules(), "main.py", text, project)


@pytest.mark.parametrize("code", ["CHP017", "CHP018", "CHP019", "CHP020", "CHP021", "CHP022"])
@pytest.mark.parametrize(
    "text",
    [
        "import torch\nprint(torch.__version__)\n",
        "from torch.utils.data import DataLoader\nloader = DataLoader([1, 2], batch_size=2, shuffle=True)\n",
        "class D:\n    def __init__(self, x):\n        with open(x) as f:\n            self.x = f.read()\n",
    ],
)
def test_modules_without_the_hazard_are_not_even_parsed(code: str, text: str) -> None:
    assert not RULES[code].concerns(text, Project({"a.py": text}))

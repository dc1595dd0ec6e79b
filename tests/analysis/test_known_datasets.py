"""Datasets and collation that the code shows to gain nothing, each with a near look-alike that only a run decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run, write_files
from test_gains import AT_RUN_TIME, BATCHED, HEAD, NOTHING, PICTURES, STANDARDIZED, gains, loaders

LOCAL = """{head}def tensors(rows):
    class Local(Dataset):
        def __init__(self, rows, transform):
            self.rows = rows
            self.transform = transform

        def __len__(self):
            return len({rows})

        def __getitem__(self, index):
            x = {rows}[index]
            if self.transform:
                x = self.transform(x)
            return x, index

    return Local(rows, float)


def pictures(rows):
    return torchvision.datasets.MNIST(rows)


class Training:
    def __init__(self, kind):
        if kind == "rows":
            self.make = tensors
        elif kind == "pictures":
            self.make = {other}
        else:
            raise ValueError(kind)

    def train(self):
        return DataLoader(self.make("data"), 4)
"""


@pytest.mark.parametrize(
    ("rows", "other", "expected"),
    [
        ("self.rows", "pictures", NOTHING),
        ("rows", "pictures", NOTHING),
        ("self.rows", "kind", AT_RUN_TIME),
    ],
)
def test_alternatives_that_all_read_single_samples(
    tmp_path: Path, rows: str, other: str, expected: tuple[str, str]
) -> None:
    assert gains(tmp_path, train=LOCAL.format(head=HEAD, rows=rows, other=other)) == [expected]


REGISTRY = {
    "data/__init__.py": "from data.photos import Photos\nfrom data.pictures import Pictures\n\n"
    "_SETS = {'photos': Photos, 'pictures': Pictures}\n\n\ndef make(name, **options):\n"
    "    if name not in _SETS:\n        raise ValueError(name)\n    return _SETS[name](**options)\n",
    "data/pictures.py": PICTURES,
    "data/photos.py": "from data.pictures import Pictures\n\n\nclass Photos(Pictures):\n    pass\n",
    "one.py": "import torch\n",
    "two.py": "import torch\nfrom one import torch\n",
    "three.py": "import train\n\nnames = [train.loader_of]\n",
}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", NOTHING),
        ("\n\ndef register(name, dataset):\n    _SETS[name] = dataset\n", NOTHING),
        (
            "\nimport elsewhere\n\ndef register(name, dataset):\n    _SETS[name] = dataset\n\n"
            "register('sounds', elsewhere.Sounds)\n",
            AT_RUN_TIME,
        ),
        ("\nfrom elsewhere import Sounds\n_SETS['sounds'] = Sounds\n", AT_RUN_TIME),
    ],
)
def test_a_registry_of_classes_that_all_read_single_samples(
    tmp_path: Path, more: str, expected: tuple[str, str]
) -> None:
    text = (
        f"{HEAD}from data import make\n\n\ndef loader_of(name):\n    return DataLoader(make(name, paths=[name]), 4)\n"
    )
    files = {**REGISTRY, "data/__init__.py": REGISTRY["data/__init__.py"] + more, "train.py": text}
    root = write_files(tmp_path / "project", files)
    assert [(one["gain"]["kind"], one["status"]) for one in loaders(root)] == [expected]


def test_callers_are_followed_through_many_modules(tmp_path: Path) -> None:
    build = f"{HEAD}def loader_of(dataset):\n    return DataLoader(dataset, batch_size=4)\n"
    call = "from build import loader_of\nfrom data import Pictures\n\nloader = loader_of(Pictures([]))\n"
    others = {f"call{number}": f"{call}number = {number}\n" for number in range(8)}
    assert gains(tmp_path, build=build, **others) == [NOTHING]
    assert gains(tmp_path, build=build, **others, other="import build\n\nf = build.loader_of\n") == [AT_RUN_TIME]


SPLIT = """{head}from data import Pictures


class Parts(ConcatDataset):
    {reader}

    def split(self, groups):
        return {{name: Parts([self.datasets[one] for one in group]) for name, group in groups.items()}}


def train(names, groups):
    parts = Parts([{parts} for one in names]).split(groups)
    return DataLoader(parts["train"], batch_size=4)
"""


@pytest.mark.parametrize(
    ("reader", "parts", "expected"),
    [
        ("def __getitem__(self, index):\n        return self.read(index)", "one", NOTHING),
        ("parts = None", "Pictures(one)", NOTHING),
        ("parts = None", "one", AT_RUN_TIME),
        ("parts = None", "TensorDataset(one)", BATCHED),
    ],
)
def test_parts_of_a_dataset_are_read_as_the_dataset(
    tmp_path: Path, reader: str, parts: str, expected: tuple[str, str]
) -> None:
    assert gains(tmp_path, train=SPLIT.format(head=HEAD, reader=reader, parts=parts)) == [expected]


DECORATED = """{head}import dataclasses
import elsewhere

REGISTRY = {{}}


class Registry:
    def add(self, cls):
        REGISTRY[cls.__name__] = cls
        return cls

    def named(self, name):
        def add(cls):
            REGISTRY[name] = cls
            return cls

        return add


def register(cls):
    REGISTRY[cls.__name__] = cls
    return cls


def wrap(cls):
    return lambda *given: elsewhere.Wrapped(cls(*given))


registry = Registry()


@{decorator}
class Squares(Dataset):
    def __getitem__(self, index):
        return torch.load(index)


def train():
    return DataLoader(Squares(), batch_size=4)
"""


@pytest.mark.parametrize(
    ("decorator", "expected"),
    [
        ("register", NOTHING),
        ("registry.add", NOTHING),
        ("registry.named('squares')", NOTHING),
        ("dataclasses.dataclass", NOTHING),
        ("dataclasses.dataclass(frozen=True)", NOTHING),
        ("wrap", AT_RUN_TIME),
        ("elsewhere.register", AT_RUN_TIME),
    ],
)
def test_a_decorator_that_returns_the_class_changes_nothing(
    tmp_path: Path, decorator: str, expected: tuple[str, str]
) -> None:
    assert gains(tmp_path, train=DECORATED.format(head=HEAD, decorator=decorator)) == [expected]


COLLATED = """{head}from functools import partial
from typing import Optional

from elsewhere import Trainer, collate, stack_sounds
from data import padded


class Collator:
    def __call__(self, batch):
        return batch


class Training(Trainer):
    {annotation}

    def __init__(self, *given):
        super().__init__(*given)
        self.held: Collator
        self.perhaps: Optional[Collator]
        self.plain: object
        self.other: Collator = given[0]

    def pad(self, batch):
        return padded(batch)

    def train(self, data, given=None):
        options = {{"collate_fn": self.held}}
        made = Collator()
        return DataLoader(data, batch_size=4, {collation})
"""


@pytest.mark.parametrize(
    ("collation", "expected"),
    [
        ("collate_fn=Collator()", NOTHING),
        ("collate_fn=made", NOTHING),
        ("collate_fn=partial(padded, 1)", NOTHING),
        ("collate_fn=self.pad", NOTHING),
        ("collate_fn=self.held", NOTHING),
        ("**options", NOTHING),
        ("collate_fn=stack_sounds", NOTHING),
        ("collate_fn=self.perhaps", AT_RUN_TIME),
        ("collate_fn=self.plain", AT_RUN_TIME),
        ("collate_fn=self.other", AT_RUN_TIME),
        ("collate_fn=self.unheard_of", AT_RUN_TIME),
        ("collate_fn=given", AT_RUN_TIME),
        ("collate_fn=given or made", AT_RUN_TIME),
        ("collate_fn=collate", AT_RUN_TIME),  # a library may give PyTorch's another name
        ("collate_fn=partial(given, 1)", AT_RUN_TIME),
        ("", AT_RUN_TIME),
    ],
)
def test_collation_that_is_never_that_of_pytorch(tmp_path: Path, collation: str, expected: tuple[str, str]) -> None:
    text = COLLATED.format(head=HEAD, annotation="pass", collation=collation)
    assert gains(tmp_path, train=text) == [expected]


@pytest.mark.parametrize(("decorator", "expected"), [("", NOTHING), ("@elsewhere.wrap\n", AT_RUN_TIME)])
def test_a_library_reads_classes_without_a_base_of_pytorch_too(
    tmp_path: Path, decorator: str, expected: tuple[str, str]
) -> None:
    text = f"""{HEAD}import elsewhere


{decorator}class Rows:
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return torch.load(self.rows[index])


def known(rows):
    return DataLoader(Rows(rows), batch_size=4)


def given(data):
    return DataLoader(data, batch_size=4)
"""
    root = write_files(tmp_path / "project", {"train.py": text, "setup.py": "from setuptools import setup\n"})
    assert [(one["gain"]["kind"], one["status"]) for one in loaders(root)][1] == expected


LISTED = """{head}from data import padded


class Listed(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def copied(loader):
    return DataLoader(loader.dataset, 2, collate_fn=loader.collate_fn)


def train(samples, given):
    data = Subset(Listed(samples), range(3))
    return {made}
"""


@pytest.mark.parametrize(
    ("made", "status"),
    [
        ("DataLoader(data, 4, collate_fn=padded)", "unchanged"),
        ("DataLoader(data, batch_size=None)", "unchanged"),
        ("DataLoader(data, 4, collate_fn=padded), DataLoader(data, batch_size=None)", "unchanged"),
        ("DataLoader(data, 4, collate_fn=padded), DataLoader(data, 4)", "rewrite"),
        ("data", "rewrite"),
        ("copied(DataLoader(data, 4, collate_fn=padded))", "unchanged"),
        ("copied(DataLoader(data, 4, collate_fn=padded if given else None))", "rewrite"),
    ],
)
def test_a_class_is_declared_for_loaders_that_read_batches(tmp_path: Path, made: str, status: str) -> None:
    root = write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": LISTED.format(head=HEAD, made=made)})
    assert [one["status"] for one in loaders(root, rule="CHP002")] == [status]
    assert [one["status"] for one in loaders(root, "--all-loaders", rule="CHP002")] == ["rewrite"]


@pytest.mark.parametrize(("made", "status"), [("[]", "unchanged"), ("given", "rewrite")])
def test_a_class_that_no_loader_is_known_to_get_may_be_in_any(tmp_path: Path, made: str, status: str) -> None:
    text = LISTED.format(head=HEAD, made=f"DataLoader({made})").replace("DataLoader(loader.dataset, 2, ", "dict(")
    root = write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": text})
    assert [one["status"] for one in loaders(root, rule="CHP002")] == [status]


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("", "unchanged"),
        ("make(open('samples'), 4)\n", "unchanged"),
        ("make(TensorDataset(torch.zeros(3)), 4)\n", "rewrite"),
        ("make(TensorDataset(torch.zeros(3)), 4, cls=print)\n", "unchanged"),
        ("DataLoader(TensorDataset(torch.zeros(3)), 4)\n", "unchanged"),
    ],
)
def test_a_class_of_loaders_that_is_passed_on_gains_nothing_unless_a_dataset_that_reaches_it_does(
    tmp_path: Path, call: str, status: str
) -> None:
    text = f"{HEAD}def make(data, *given, cls=DataLoader, **options):\n    return cls(data, *given, **options)\n"
    root = write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": f"{text}\n\n{call}"})
    assert loaders(root)[0]["status"] == status
    assert loaders(root, "--all-loaders")[0]["status"] == "rewrite"


@pytest.mark.parametrize("caller", ["tests/test_train.py", "pkg/conftest.py", "usage.py"])
@pytest.mark.parametrize("others", ["", "train.make(data.Pictures([]))\n"])
def test_datasets_that_only_tests_pass_to_a_library_are_no_gain(tmp_path: Path, caller: str, others: str) -> None:
    files = {
        "setup.py": "from setuptools import setup\n",
        "data.py": PICTURES,
        "train.py": f"{HEAD}def make(data):\n    return DataLoader(data, batch_size=4)\n",
        "other.py": f"import data\nimport train\n\n{others}",
        caller: f"{HEAD}import train\n\ntrain.make(TensorDataset(torch.zeros(3)))\n",
    }
    root = write_files(tmp_path / "mine", files)
    expected = BATCHED if caller == "usage.py" else NOTHING
    assert [(one["gain"]["kind"], one["status"]) for one in loaders(root)] == [expected]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("TensorDataset(x), batch_size=1", NOTHING),
        ("TensorDataset(x), 1", NOTHING),
        ("Subset(TensorDataset(x), [0]), batch_size=1, shuffle=True", NOTHING),
        ("[x, x], batch_size=1", NOTHING),
        ("TensorDataset(x)", NOTHING),
        ("TensorDataset(x), shuffle=True", NOTHING),
        ("TensorDataset(x), **n", BATCHED),
        ("TensorDataset(x), batch_sampler=n", BATCHED),
        ("TensorDataset(x), sampler=n", BATCHED),
        ("TensorDataset(x), 1, False, n", BATCHED),
        ("TensorDataset(x), batch_size=1, sampler=n", BATCHED),
        ("*n", AT_RUN_TIME),
        ("TensorDataset(x), None, None, None, n", BATCHED),
        ("n", AT_RUN_TIME),
        ("TensorDataset(x), batch_size=2", BATCHED),
        ("TensorDataset(x), batch_size=n", BATCHED),
        ("TensorDataset(x), batch_size=1, batch_sampler=n", BATCHED),
        ("Standardized(x, [0], 0.0, 1.0), batch_size=1", BATCHED),
        ("n, batch_size=1", AT_RUN_TIME),
    ],
)
def test_batches_of_one_sample_in_memory_gain_nothing(tmp_path: Path, made: str, expected: tuple[str, str]) -> None:
    text = f"{HEAD}{STANDARDIZED}def make(x, n):\n    return DataLoader({made})\n"
    assert gains(tmp_path, train=text) == [expected]


def test_a_main_script_that_imports_its_own_module_keeps_its_loaders(tmp_path: Path) -> None:
    text = (
        f"from data import Pictures\n{HEAD}class Training:\n    def run(self, files):\n"
        "        return DataLoader(Pictures(files), batch_size=4)\n\n\n"
        "if __name__ == '__main__':\n    from pkg import Training\n    Training().run([])\n"
    )
    files = {"data.py": PICTURES, "pkg/__init__.py": "from pkg.run import Training\n", "pkg/run.py": text}
    (found,) = loaders(write_files(tmp_path / "mine", files))
    assert (found["gain"]["kind"], found["status"]) == NOTHING


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("isinstance(data, torch.utils.data.Dataset)", NOTHING),
        ("isinstance(data, Dataset)", NOTHING),
        ("isinstance(data, (list, Dataset))", BATCHED),
        ("not isinstance(data, Dataset)", BATCHED),
        ("isinstance(other, Dataset)", BATCHED),
        ("isinstance(data, Dataset) and other", BATCHED),
    ],
)
def test_tensors_do_not_reach_a_loader_of_what_is_checked_to_be_a_dataset(
    tmp_path: Path, check: str, expected: tuple[str, str]
) -> None:
    text = (
        f"from data import Pictures\nfrom torch.utils.data import Dataset\n{HEAD}def embed(data, other):\n"
        f"    if {check}:\n        return DataLoader(data, batch_size=4)\n    return data\n\n\n"
        "embed(torch.zeros(9), None)\nembed(Pictures([]), None)\n"
    )
    (found,) = loaders(write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": text}))
    assert (found["gain"]["kind"], found["status"]) == expected


@pytest.mark.parametrize(
    "code",
    [
        "        data = torch.stack(list(data))\n        return DataLoader(data, batch_size=4)\n",
        "        match torch.zeros(9):\n            case data:\n                return DataLoader(data, 4)\n",
        "        make = lambda: DataLoader(data, batch_size=4)\n    data = torch.zeros(9)\n    return make()\n",
    ],
)
def test_a_checked_name_that_is_assigned_again_may_be_a_tensor(tmp_path: Path, code: str) -> None:
    text = f"from torch.utils.data import Dataset\n{HEAD}def embed(data):\n    if isinstance(data, Dataset):\n{code}"
    (found,) = loaders(write_files(tmp_path / "mine", {"train.py": f"{text}\n\nembed(torch.zeros(9))\n"}))
    assert found["status"] == "rewrite"


@pytest.mark.parametrize(
    "dataset", ["from typing import Sequence as Dataset\n", "class Dataset(Protocol):\n    pass\n"]
)
def test_another_class_called_dataset_excludes_nothing(tmp_path: Path, dataset: str) -> None:
    text = (
        f"from typing import Protocol\nfrom data import Pictures\n{HEAD}{dataset}\n\ndef embed(data):\n"
        "    if isinstance(data, Dataset):\n        return DataLoader(data, batch_size=4)\n\n\n"
        "embed(torch.zeros(9))\nembed(Pictures([]))\n"
    )
    (found,) = loaders(write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": text}))
    assert found["status"] == "rewrite"


@pytest.mark.parametrize("given", ["batch_size=8", "**settings"])
def test_a_default_batch_size_that_a_partial_changes_is_not_one(tmp_path: Path, given: str) -> None:
    made = f"make = functools.partial(DataLoader, {given})\nloader = make(TensorDataset(torch.zeros(9)))\n"
    root = write_files(tmp_path / "mine", {"train.py": f"import functools\n{HEAD}{made}"})
    assert "gain: batched reading" in run("plan", "-v", root).stdout


@pytest.mark.parametrize(("made", "expected"), [("[]", NOTHING), ("()", NOTHING), ("[x]", AT_RUN_TIME)])
def test_an_empty_dataset_gains_nothing(tmp_path: Path, made: str, expected: tuple[str, str]) -> None:
    assert gains(tmp_path, train=f"{HEAD}def train(x):\n    return DataLoader({made}, batch_size=4)\n") == [expected]


METHODS = """{head}from data import Pictures


class Training:
    def __init__(self, paths, data=None):
        self.pictures = Pictures(paths)
        self.data = data

    def setup(self, paths):
        self.later = Pictures(paths)

    def loader(self, data=None, shuffle=False):
        return DataLoader({dataset}, batch_size=4, shuffle=shuffle)


class Other(Training):
    def both(self):
        return self.loader(shuffle=True), self.loader


Training([]).loader()
"""


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("Pictures([])", NOTHING),
        ("self.pictures", NOTHING),
        ("Subset(self.pictures, [0])", NOTHING),
        ("self.data", AT_RUN_TIME),
        ("self.later", AT_RUN_TIME),
        ("data or self.pictures", AT_RUN_TIME),
    ],
)
def test_a_method_that_creates_its_dataset_decides_for_any_caller(
    tmp_path: Path, dataset: str, expected: tuple[str, str]
) -> None:
    assert gains(tmp_path, train=METHODS.format(head=HEAD, dataset=dataset)) == [expected]


@pytest.mark.parametrize(
    ("body", "expected"), [("pass", NOTHING), ("def __getitem__(self, index):\n        return index", AT_RUN_TIME)]
)
def test_a_class_that_inherits_its_reading_is_read_as_its_base(
    tmp_path: Path, body: str, expected: tuple[str, str]
) -> None:
    text = f"""{HEAD}import elsewhere
from data import Pictures


@elsewhere.deprecated
class Old(Pictures):
    {body}


def given(data):
    return DataLoader(data, batch_size=4)
"""
    files = {"train.py": text, "data.py": PICTURES, "setup.py": "from setuptools import setup\n"}
    root = write_files(tmp_path / "project", files)
    assert [(one["gain"]["kind"], one["status"]) for one in loaders(root)] == [expected]


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (
            "self.rows[index], self.rows[self.others[index]]",
            "the datasets of this project index samples one by one (data.py:6), so",
        ),
        ("load(self.rows[index])", "no dataset of this project can be read a batch at a time, so"),
    ],
)
def test_a_library_whose_datasets_only_index_says_so(tmp_path: Path, read: str, why: str) -> None:
    data = (
        "from torch.utils.data import Dataset\n\nclass Rows(Dataset):\n    def __len__(self):\n        return 3\n"
        f"    def __getitem__(self, index):\n        return {read}\n"
    )
    text = f"{HEAD}def given(data):\n    return DataLoader(data, batch_size=4)\n"
    root = write_files(tmp_path, {"train.py": text, "data.py": data, "setup.py": "from setuptools import setup\n"})
    shown = " ".join(run("apply", root).stdout.split())
    assert why in shown and ("chirp-migrate tune" in shown) == ("load(" in read)

"""What the migration of each loader buys, and that what buys nothing stays as it is, by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import run, snapshot, write_files

HEAD = """\
import torch
import torchvision
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split

"""
#: A dataset that decodes each sample by itself: its `__getitem__` stands in line 14.
PICTURES = """\
from PIL import Image
from torch.utils.data import Dataset, IterableDataset


class Pictures(Dataset):
    def __init__(self, paths, transform=None):
        self.paths = paths
        self.transform = transform

    def __len__(self):
        return len(self.paths)


    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index])), index


class Photos(Pictures):
    pass


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(9))


def padded(batch):
    return batch
"""
#: A dataset whose samples CHP002 declares.
STANDARDIZED = """\
class Standardized(Dataset):
    def __init__(self, dataset, indices, mean, std):
        self.dataset, self.indices = dataset, indices
        self.mean, self.std = mean, std

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        x, y = self.dataset[self.indices[index]]
        return (x - self.mean) / (self.std + 1e-8), y


"""


def loaders(root: Path, *options: object, rule: str = "CHP001") -> list[dict[str, Any]]:
    """What ``apply`` finds of the loaders, or by another rule, in the order of files and lines; nothing is written."""
    target = root.parent / "found.json"
    assert run("apply", "--diff", "--json", target, *options, root).exit_code == 0
    found = [one for one in json.loads(target.read_text())["findings"] if one["rule"] == rule]
    return sorted(found, key=lambda one: (one["path"], one["line"]))


def gains(root: Path, **files: str) -> list[tuple[str, str]]:
    """Kind and status of each loader of some modules."""
    write_files(root / "project", {"data.py": PICTURES, **{f"{name}.py": text for name, text in files.items()}})
    return [(one["gain"]["kind"], one["status"]) for one in loaders(root / "project")]


BATCHED, AT_RUN_TIME = ("batched-reading", "rewrite"), ("decided-at-run-time", "rewrite")
PICKLABLE, NOTHING = ("picklable-workers", "rewrite"), ("nothing", "unchanged")


@pytest.mark.parametrize(
    "made",
    [
        "TensorDataset(x, y)",
        "Subset(TensorDataset(x, y), range(3))",
        "ConcatDataset([TensorDataset(x, y), Subset(TensorDataset(x, y), range(3))])",
        "random_split(TensorDataset(x, y), [3, 6])[0]",
        "Standardized(TensorDataset(x, y), range(3), 0.0, 1.0)",
        "Subset(Standardized(anything, range(3), 0.0, 1.0), [0])",
        "torch.from_numpy(x)",
        "torch.tensor(x, dtype=torch.float32)[:9].unsqueeze(1)",
        "np.zeros((9, 2)).astype('float32')",
        "Subset(torch.stack(x), range(3))",
        "random_split(np.random.rand(9, 2), [3, 6])[0]",
    ],
)
def test_samples_that_are_read_at_once(tmp_path: Path, made: str) -> None:
    head = f"{HEAD}import numpy as np\n\n{STANDARDIZED}"
    text = f"{head}def train(x, y, anything):\n    data = {made}\n    return DataLoader(data, 4)\n"
    assert gains(tmp_path, train=text) == [BATCHED]


@pytest.mark.parametrize(
    "made",
    [
        "Pictures(paths)",
        "Photos(paths)",
        "Subset(Pictures(paths), range(3))",
        "ConcatDataset([Pictures(paths), Pictures(paths)])",
        "random_split(Pictures(paths), [3, 6])[1]",
        "Stream()",
        "torchvision.datasets.ImageFolder('train', transform=torchvision.transforms.ToTensor())",
        "Subset(torchvision.datasets.CIFAR10('.'), range(3))",
        "Pictures(paths) if len(paths) else Stream()",
        "Pictures(paths) + Photos(paths)",
        "sum([Pictures(one) for one in paths])",
    ],
)
def test_samples_that_only_their_own_code_reads(tmp_path: Path, made: str) -> None:
    text = f"{HEAD}from data import *\n\ndef train(paths):\n    data = {made}\n    return DataLoader(data, 4)\n"
    assert gains(tmp_path, train=text) == [NOTHING]


@pytest.mark.parametrize(
    "made",
    [
        "data",
        "build(data)",
        "Pictures(data) if data else data",
        "Subset(data, range(3))",
        "[(x, 1) for x in data]",
        "sets[data]",
        "elsewhere.Dataset(data)",
        "Pictures(data) + data",
        "sum(data)",
        "data.values.astype('float32')",
        "np.array(data)",
        "torch.tensor(data, device=device)",
        "torch.tensor(data, requires_grad=True)",
        "torch.tensor(data).to(device)",
    ],
)
def test_what_is_not_known_is_decided_when_the_program_runs(tmp_path: Path, made: str) -> None:
    head = f"{HEAD}import elsewhere\nimport numpy as np\nfrom data import Pictures\n\n"
    text = f"{head}def train(data, device):\n    return DataLoader({made}, 4)\n"
    assert gains(tmp_path, train=text) == [AT_RUN_TIME]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [("[(x, 1), (x, 2)]", BATCHED), ("torch.stack(x)", BATCHED), ("x", AT_RUN_TIME), ("{0: x}", AT_RUN_TIME)],
)
def test_lists_and_tensors_are_stacked_at_once(tmp_path: Path, samples: str, expected: tuple[str, str]) -> None:
    text = f"""{HEAD}class Listed(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def train(x):
    return DataLoader(Listed({samples}), batch_size=4)
"""
    assert gains(tmp_path, train=text) == [expected]
    assert run("apply", tmp_path / "project").exit_code == 0
    assert "@lists_samples" in (tmp_path / "project" / "train.py").read_text()
    assert [one["status"] for one in loaders(tmp_path / "project")] == ["fine"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("load_dataset('glue', split='train')", NOTHING),
        ("load_dataset('glue')['train'].map(tokenize, batched=True).with_format('torch')", NOTHING),
        ("load_dataset('glue')[split].shuffle(seed=3).select(range(9))", NOTHING),
        ("datasets.Dataset.from_dict({'x': [1]}).remove_columns('x').train_test_split(0.1)['test']", NOTHING),
        ("datasets.load_from_disk('x')[0]", AT_RUN_TIME),
        ("load_dataset('glue').to_pandas()", AT_RUN_TIME),
    ],
)
def test_datasets_of_hugging_face_read_their_own_samples(tmp_path: Path, made: str, expected: tuple[str, str]) -> None:
    head = f"{HEAD}import datasets\nfrom datasets import load_dataset\n\n"
    text = f"{head}def train(tokenize, split):\n    return DataLoader({made}, 4, shuffle=True)\n"
    assert gains(tmp_path, train=text) == [expected]
    own = "def load_dataset(*args, **options):\n    raise NotImplementedError\n"
    assert gains(tmp_path, train=text, datasets=own) == [AT_RUN_TIME], "a module of the project"


def test_loaders_of_which_accelerate_makes_others_gain_nothing(tmp_path: Path) -> None:
    text = f"""{HEAD}from accelerate import Accelerator

def main(model, data, x):
    accelerator = Accelerator()
    prepared = DataLoader(TensorDataset(x), batch_size=4, shuffle=True)
    unknown = DataLoader(data, batch_size=4)
    both = DataLoader(TensorDataset(x), batch_size=4)
    kept = DataLoader(TensorDataset(x), batch_size=4)
    held = DataLoader(data, 4, num_workers=2, collate_fn=lambda batch: batch)
    model, prepared, unknown = accelerator.prepare(model, prepared, unknown)
    copy, held = accelerator.prepare(both, held)
    for batch in both:
        model(batch)
    return prepared, kept
"""
    assert gains(tmp_path, train=text) == [NOTHING, NOTHING, BATCHED, BATCHED, PICKLABLE]
    done = run("plan", tmp_path / "project")
    assert "accelerate rebuilds the loader with PyTorch's class (train.py:14)" in " ".join(done.stdout.split())


def test_a_dataset_is_followed_from_all_of_its_callers(tmp_path: Path) -> None:
    build = f"{HEAD}def loader_of(dataset):\n    return DataLoader(dataset, batch_size=4)\n"
    call = "from build import loader_of\nfrom data import Pictures\n\nloader = loader_of(Pictures([]))\n"
    assert gains(tmp_path, build=build, a=call, b=call) == [NOTHING]
    other = call.replace("Pictures([])", "torch.utils.data.TensorDataset(x)").replace(
        "from build", "import torch\nfrom build", 1
    )
    assert gains(tmp_path, build=build, a=call, b=other) == [BATCHED]
    assert gains(tmp_path, build=build, a=call, b="from build import loader_of\n\nf = [loader_of]\n") == [AT_RUN_TIME]
    assert gains(tmp_path, build=build, a="", b="") == [AT_RUN_TIME], "who calls it is not in the project"


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("pictures", NOTHING),
        ("make(rank)", NOTHING),
        ("Pictures([rank])", NOTHING),
        ("rank", AT_RUN_TIME),
        ("rank or pictures", AT_RUN_TIME),
    ],
)
def test_what_a_function_is_given_matters_only_if_the_dataset_depends_on_it(
    tmp_path: Path, dataset: str, expected: tuple[str, str]
) -> None:
    text = f"""{HEAD}from data import Pictures
from elsewhere import spawn

pictures = Pictures([])


def make(paths):
    return Pictures(paths)


def train(rank):
    return DataLoader({dataset}, batch_size=4)


spawn(train)
"""
    assert gains(tmp_path, train=text) == [expected]


ANNOTATED = """{head}import data
from typing import Optional, Protocol
from data import Pictures


class Tensors(Pictures, TensorDataset):
    pass


class Sized(Protocol):
    def __getitem__(self, index): ...


class Abstract(Dataset):
    def __getitem__(self, index):
        raise NotImplementedError


class Own(Dataset):
    def __getitem__(self, index):
        return open(str(index)).read()

{more}
class Trainer:
    def train(self, sets):
        return self._loader(sets[0])

    def _loader(self, dataset: {annotation}, **more):
        {before}
        return DataLoader({argument}, batch_size=4, **more)
"""


@pytest.mark.parametrize(
    ("annotation", "parts", "expected"),
    [
        ("Pictures", {}, NOTHING),
        ("data.Photos", {}, NOTHING),
        ("'data.Pictures'", {}, NOTHING),
        ("Pictures = None", {"argument": "dataset=dataset"}, NOTHING),
        ("Tensors", {}, NOTHING),
        ("Own", {"more": "class Sub(Own):\n    extra = 1\n"}, NOTHING),
        ("Own", {"more": "class Sub(TensorDataset, Own):\n    extra = 1\n"}, AT_RUN_TIME),
        ("Standardized", {"more": STANDARDIZED}, AT_RUN_TIME),
        ("Optional[Pictures]", {}, AT_RUN_TIME),
        ("Pictures | TensorDataset", {}, AT_RUN_TIME),
        ("Dataset", {}, AT_RUN_TIME),
        ("Sized", {}, AT_RUN_TIME),
        ("Abstract", {}, AT_RUN_TIME),
        ("Unheard", {}, AT_RUN_TIME),
        ("Pictures", {"before": "dataset = more.pop('other')"}, AT_RUN_TIME),
        ("Pictures", {"argument": "more['dataset']"}, AT_RUN_TIME),
    ],
)
def test_an_annotation_with_a_class_of_the_project_decides(
    tmp_path: Path, annotation: str, parts: dict[str, str], expected: tuple[str, str]
) -> None:
    parts = {"more": "", "before": "print(more)", "argument": "dataset", **parts}
    assert gains(tmp_path, train=ANNOTATED.format(head=HEAD, annotation=annotation, **parts)) == [expected]


def test_an_annotation_decides_nothing_against_a_caller_that_passes_tensors(tmp_path: Path) -> None:
    text = f"{HEAD}from data import Pictures\n\ndef make(data: Pictures):\n    return DataLoader(data, 4)\n\n"
    assert gains(tmp_path, train=text) == [NOTHING]
    assert gains(tmp_path, train=f"{text}make(TensorDataset(torch.zeros(3)))\n") == [BATCHED]


def test_a_constructor_that_makes_its_datasets_decides_for_any_caller(tmp_path: Path) -> None:
    text = f"""{HEAD}from data import Photos, Pictures

KNOWN = {{"photos": Photos, "pictures": Pictures}}


class Manager:
    def __init__(self, names, own=None):
        parts = []
        for name in names:
            parts.append(KNOWN[name](name))
        self.train_loader = DataLoader(sum(parts), batch_size=4)
        self.own_loader = DataLoader(own, batch_size=4) if own else None
"""
    assert gains(tmp_path, train=text) == [NOTHING, AT_RUN_TIME]
    assert gains(tmp_path, train=text.partition("        self.own")[0]) == [NOTHING]


@pytest.mark.parametrize(
    ("parameter", "otherwise", "expected"),
    [("", "padded", NOTHING), ("", "None", AT_RUN_TIME), ("collate=None, ", "padded", AT_RUN_TIME)],
)
def test_own_collation_decides_if_the_function_around_sets_it(
    tmp_path: Path, parameter: str, otherwise: str, expected: tuple[str, str]
) -> None:
    text = f"""{HEAD}from data import padded

def stacked(batch):
    return batch


def make(data, {parameter}stack=False):
    if stack:
        collate = stacked
    else:
        collate = {otherwise}
    return DataLoader(data, 4, collate_fn=collate)
"""
    assert gains(tmp_path, train=text) == [expected]


def test_a_loader_of_single_samples_reads_no_batches(tmp_path: Path) -> None:
    text = f"{HEAD}def make(x, n):\n    return DataLoader(TensorDataset(x), batch_size={{}})\n"
    assert gains(tmp_path, train=text.format("None")) == [NOTHING]
    assert gains(tmp_path, train=text.format("n")) == [BATCHED]


def test_a_dataset_is_followed_through_attributes_and_methods(tmp_path: Path) -> None:
    text = f"""{HEAD}from data import Pictures

class Module:
    def setup(self):
        self.train_set = Pictures([])
        self.kept = TensorDataset(torch.zeros(3))

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=4)

    def val_dataloader(self):
        return DataLoader(self.kept, batch_size=4)

    def test_dataloader(self):
        return DataLoader(self.unheard_of, batch_size=4)
"""
    assert gains(tmp_path, module=text) == [NOTHING, BATCHED, AT_RUN_TIME]


def test_own_collation_leaves_nothing_to_read_at_once(tmp_path: Path) -> None:
    text = f"""{HEAD}from data import padded
data = TensorDataset(torch.zeros(3))
a = DataLoader(data, batch_size=4, collate_fn=padded)
b = DataLoader(data, batch_size=4, collate_fn=torch.utils.data.default_collate)
c = DataLoader(data, batch_size=4, collate_fn=None)
d = DataLoader(data, batch_size=4, collate_fn=lambda batch: batch)
"""
    assert gains(tmp_path, train=text) == [NOTHING, BATCHED, BATCHED, AT_RUN_TIME]


def test_own_collation_that_the_call_names_decides_whatever_the_dataset_is(tmp_path: Path) -> None:
    text = f"{HEAD}from data import padded\n\ndef make(data):\n    return DataLoader(data, 4, collate_fn=padded)\n"
    assert gains(tmp_path, train=text) == [NOTHING]


@pytest.mark.parametrize(
    ("metadata", "dataset", "expected"),
    [
        ({}, "", AT_RUN_TIME),
        ({"pyproject.toml": "[tool.black]\n"}, "", AT_RUN_TIME),
        ({"pyproject.toml": '[project]\nname = "sounds"\n'}, "", NOTHING),
        ({"setup.py": "from setuptools import setup\nsetup(name='sounds')\n"}, "", NOTHING),
        ({"pyproject.toml": '[project]\nname = "sounds"\n'}, STANDARDIZED, AT_RUN_TIME),
        ({"pyproject.toml": '[project]\nname = "sounds"\n', "data.py": ""}, "", AT_RUN_TIME),
    ],
)
def test_a_library_without_datasets_to_read_in_batches_takes_no_dependency(
    tmp_path: Path, metadata: dict[str, str], dataset: str, expected: tuple[str, str]
) -> None:
    made = {"train.py": f"{HEAD}{dataset}def make(data):\n    return DataLoader(data, 4)\n"}
    root = write_files(tmp_path / "project", {"data.py": PICTURES, **made, **metadata})
    (found,) = loaders(root)
    assert (found["gain"]["kind"], found["status"]) == expected


@pytest.mark.parametrize("workers", ["2", "workers"])
def test_workers_that_become_startable_are_a_gain(tmp_path: Path, workers: str) -> None:
    text = f"""{HEAD}from data import Pictures

def train(paths, workers):
    data = Pictures(paths, transform=lambda image: image)
    train_loader = DataLoader(data, batch_size=4, num_workers={workers})
    return train_loader, DataLoader(data, batch_size=4)
"""
    assert gains(tmp_path, train=text) == [PICKLABLE, NOTHING]
    assert run("apply", tmp_path / "project").exit_code == 0
    after = (tmp_path / "project" / "train.py").read_text()
    assert "lambda" not in after and "create_loader(" in after and ", DataLoader(data, batch_size=4)" in after
    assert "Clean" in run("check", tmp_path / "project").stdout


@pytest.mark.parametrize(
    ("reads", "more", "expected"),
    [
        ("torch.load(paths[index])[:size]", "", NOTHING),
        ("{'a': self.opened[index].read(size)}", "def __init__(self):\n            self.opened = paths", NOTHING),
        ("torch.load(self.paths[index])", "def __init__(self):\n            self.paths = paths", NOTHING),
        ("samples[index]", "", AT_RUN_TIME),
        ("self.read(index)", "def read(self, index):\n            return samples[index]", AT_RUN_TIME),
    ],
)
def test_a_local_class_is_judged_by_its_code(tmp_path: Path, reads: str, more: str, expected: tuple[str, str]) -> None:
    text = f"""{HEAD}
def train(paths, samples, size):
    class Local(torch.utils.data.Dataset):
        {more or repr("Samples.")}

        def __len__(self):
            return len(paths)

        def __getitem__(self, index):
            return {reads}

    return DataLoader(Local(), batch_size=4)
"""
    assert gains(tmp_path, train=text) == [expected]


WRAPPERS = """
import functools

def seeded(function):
    def wrapper(self, *args, **kwargs):
        if self.seed is None:
            return function(self, *args, **kwargs)
        return function(self, *args, **kwargs)
    return wrapper

def renamed(name):
    def decorator(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            kwargs.pop(name, None)
            return function(*args, **kwargs)
        return wrapper
    return decorator
"""


@pytest.mark.parametrize("decorator", ["@seeded", "@renamed('x')", "@renamed('x')\n    @seeded", "@staticmethod"])
@pytest.mark.parametrize(("made", "expected"), [("TensorDataset(x)", BATCHED), ("Pictures(x)", NOTHING)])
@pytest.mark.parametrize("call", ["", "\n\ndef main(files):\n    return Trainer().fit(files)\n"])
def test_a_decorated_method_is_judged_like_another(
    tmp_path: Path, decorator: str, made: str, expected: tuple[str, str], call: str
) -> None:
    first = "" if "static" in decorator else "self, "
    text = f"""{HEAD}from data import Pictures
from wrappers import *

class Trainer:
    seed = None

    {decorator}
    def fit({first}x, size=4):
        data = {made}
        return DataLoader(data, size)
{call}"""
    assert gains(tmp_path, train=text, wrappers=WRAPPERS) == [expected]


REVIEWED = """
import functools
import inspect

def reviewed():
    def decorator(given, was_class=False):
        if inspect.isclass(given):
            given.__init__ = decorator(given.__init__, was_class=True)
            return given

        @functools.wraps(given)
        def wrapper(*args, **kwargs):
            print("reviewed")
            return given(*args, **kwargs)
        return wrapper
    return decorator
"""


@pytest.mark.parametrize(
    ("made", "expected"),
    [("Reviewed(paths)", NOTHING), ("Subset(Reviewed(paths), [0])", NOTHING), ("TensorDataset(paths)", BATCHED)],
)
def test_a_decorator_that_returns_classes_and_wraps_functions(
    tmp_path: Path, made: str, expected: tuple[str, str]
) -> None:
    text = f"""{HEAD}from wrappers import reviewed

@reviewed()
class Reviewed(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return torch.load(self.paths[index])

class Module:
    @reviewed()
    def __init__(self, paths):
        self.data = {made}

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=4)

Module([]).train_dataloader()
"""
    assert gains(tmp_path, train=text, wrappers=REVIEWED) == [expected]


@pytest.mark.parametrize(
    ("method", "expected"),
    [("accelerator.prepare", NOTHING), ("accelerator.gather", AT_RUN_TIME), ("keep", AT_RUN_TIME)],
)
def test_the_accelerator_of_a_trainer_rebuilds_loaders(tmp_path: Path, method: str, expected: tuple[str, str]) -> None:
    text = f"""{HEAD}from transformers import Trainer

class Tuner(Trainer):
    def get_train_dataloader(self):
        options = dict(batch_size=self.args.size, collate_fn=self.collator)
        return self.{method}(DataLoader(self.train_dataset, **options))
"""
    assert gains(tmp_path, train=text) == [expected]


def test_methods_are_run_although_the_constructor_is_too_long(tmp_path: Path) -> None:
    calls = "".join(f"def f{n}(x):\n    y = x\n" + f"    f{n + 1}(y)\n" * 8 + "\n" for n in range(6))
    text = f"""{HEAD}from data import Pictures

def f6(x):
    return [x, x]

{calls}
class Trainer:
    def __init__(self, paths):
        self.pictures = Pictures(paths)
        f0(paths)

    def batches(self):
        return DataLoader(self.pictures, batch_size=4)
"""
    assert gains(tmp_path, train=text) == [NOTHING]


def test_a_decorator_of_many_functions_is_run_for_each(tmp_path: Path) -> None:
    body = "data = [x]\n    for one in data:\n        print(one)\n"
    functions = "".join(f"@renamed('x')\ndef load_{n}(x):\n    {body}\n" for n in range(60))
    text = f"""{HEAD}from data import Pictures
from wrappers import *

{functions}
@renamed('x')
def fit(x):
    data = Pictures(x)
    return DataLoader(data, 4)
"""
    assert gains(tmp_path, train=text, wrappers=WRAPPERS) == [NOTHING]


@pytest.mark.parametrize(
    "branch", ["f0(kind)\n        return loader", "    return loader\n    else:\n        f0(kind)"]
)
def test_a_run_that_ends_inside_a_branch_keeps_what_it_has_created(tmp_path: Path, branch: str) -> None:
    calls = "".join(f"def f{n}(x):\n    y = x\n" + f"    f{n + 1}(y)\n" * 8 + "\n" for n in range(6))
    text = f"""{HEAD}
def f6(x):
    return [x, x]

{calls}
def train(paths, kind):
    if kind:
        class Local(torch.utils.data.Dataset):
            def __init__(self, paths):
                self.paths = paths

            def __getitem__(self, index):
                return torch.load(self.paths[index])

        loader = DataLoader(Subset(Local(paths), [0]), batch_size=4)
        {branch.strip()}
    return f0(paths)
"""
    assert gains(tmp_path, train=text) == [NOTHING]


def test_workers_that_stay_unstartable_are_no_gain(tmp_path: Path) -> None:
    text = f"""{HEAD}from data import Pictures

def train(paths):
    data = Pictures(paths, transform=lambda image: locals())
    return DataLoader(data, batch_size=4, num_workers=2)
"""
    assert gains(tmp_path, train=text) == [NOTHING]
    text = text.replace("lambda image: locals()", "lambda image: image")
    assert gains(tmp_path, train=text.replace("image: image", "image: image.close()")) == [PICKLABLE]


@pytest.mark.parametrize(
    "held",
    [
        "transform = lambda image: image",
        "def transform(image):\n        return image",
        "transform = torchvision.transforms.Compose([torchvision.transforms.Lambda(lambda image: image)])",
    ],
)
def test_what_loaders_without_workers_hold_stays_where_it_is(tmp_path: Path, held: str) -> None:
    text = f"""{HEAD}from data import Pictures

def train(paths):
    {held}
    return DataLoader(Pictures(paths, transform), batch_size=4)
"""
    root = write_files(tmp_path, {"data.py": PICTURES, "train.py": text})
    before = snapshot(root)
    done = run("apply", root)
    assert done.exit_code == 0 and snapshot(root) == before
    assert "1 loader unchanged: samples are read one by one (data.py:14)" in " ".join(done.stdout.split())
    assert run("check", root).exit_code == 0
    assert run("apply", "--all-loaders", root).exit_code == 0
    assert "OptimalDataLoaderFactory" in (root / "train.py").read_text()
    assert run("rollback", root).exit_code == 0
    assert snapshot(root, journal=False) == before


ROWS = """\
import numpy as np
import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, x, mean):
        self.x, self.mean = x, mean

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if torch.is_tensor(index):
            index = index.tolist()
        return {}
"""
READ = "samples are read one by one (rows.py:13), so the factory has nothing to speed up; chirp-migrate tune finds"


@pytest.mark.parametrize(
    ("head", "read", "expected"),
    [
        ("", "torch.as_tensor((self.x[index] - self.mean) / 3), index", "samples are indexed one by one (rows.py:13)"),
        ("", "{k: v[index] for k, v in self.x.items()}, index", "samples are indexed one by one (rows.py:13)"),
        ("", "np.load(self.x[index]), index", READ),
        ("", "self.transform(self.x[index]), index", READ),
        ("", "self.x.get(index), index", READ),
        ("import h5py\n", "torch.as_tensor(self.x[index] - self.mean), index", READ),
    ],
)
def test_more_workers_are_no_advice_for_samples_that_are_only_indexed(
    tmp_path: Path, head: str, read: str, expected: str
) -> None:
    text = f"{HEAD}from rows import Rows\n\nloader = DataLoader(Rows(load(), 0.5), batch_size=4, num_workers=2)\n"
    root = write_files(
        tmp_path,
        {"rows.py": ROWS.format(read).replace("import numpy as np\n", f"{head}import numpy as np\n"), "train.py": text},
    )
    expected = expected.replace(":13", f":{13 + head.count(chr(10))}")
    shown = " ".join(run("plan", root).stdout.split())
    assert f"1 loader unchanged: {expected}" in shown
    assert ("chirp-migrate tune" in shown) == (expected.startswith("samples are read"))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("DataLoader(data, 4)", AT_RUN_TIME),
        ("DataLoader([], 4)", NOTHING),
        ("DataLoader(dataset=[], batch_size=4)", NOTHING),
        ("DataLoader(data, 4, collate_fn=data.collate)", NOTHING),
        ("DataLoader(batch_size=4, dataset=data.train, collate_fn=data.train.collate)", NOTHING),
        ("DataLoader(data.train, 4, collate_fn=data.collate)", AT_RUN_TIME),
    ],
)
def test_a_call_shows_that_its_samples_cannot_be_read_at_once(
    tmp_path: Path, call: str, expected: tuple[str, str]
) -> None:
    assert gains(tmp_path, train=f"{HEAD}def train(data):\n    return {call}\n") == [expected]


def test_more_workers_are_no_advice_for_an_empty_dataset(tmp_path: Path) -> None:
    text = f"{HEAD}loader = DataLoader(dataset=[], batch_size=4)\n"
    shown = " ".join(run("plan", write_files(tmp_path, {"train.py": text})).stdout.split())
    assert "1 loader unchanged: the dataset is empty" in shown and "chirp-migrate tune" not in shown


def test_a_batch_size_of_none_is_named(tmp_path: Path) -> None:
    made = "a = DataLoader(Pictures([]), batch_size=None)\nb = DataLoader(Pictures([]))\n"
    text = f"{HEAD}from data import Pictures\n\n{made}"
    shown = " ".join(run("plan", write_files(tmp_path, {"data.py": PICTURES, "train.py": text})).stdout.split())
    assert "train.py: 1 loader unchanged: `batch_size=None` disables automatic batching (train.py:7)" in shown
    assert "train.py: 1 loader unchanged: samples are read one by one (data.py:14)" in shown


def test_files_with_the_same_reason_share_one_line(tmp_path: Path) -> None:
    text = f"{HEAD}from data import Pictures\n\na = DataLoader(Pictures([]), 4)\n"
    files = {f"train{number}.py": text for number in range(6)}
    root = write_files(tmp_path, {"data.py": PICTURES, **files})
    shown = " ".join(run("plan", root).stdout.split())
    assert "train0.py, train1.py, train2.py, train3.py and 2 more: 6 loaders unchanged: samples are read" in shown
    assert "train4.py, train5.py: 6 loaders unchanged" in " ".join(run("plan", "-v", root).stdout.split())
    own = f"{PICTURES}from torch.utils.data import DataLoader\n\nloader = DataLoader(Pictures([]), 4)\n"
    root = write_files(tmp_path / "own", {f"train{number}.py": own for number in range(2)})
    shown = " ".join(run("plan", root).stdout.split())
    assert (
        "train0.py, train1.py: 2 loaders unchanged: samples are read one by one (train0.py:14, train1.py:14)" in shown
    )


@pytest.mark.parametrize(
    ("name", "rest", "expected"),
    [
        ("_old", "", NOTHING),
        ("_old", "use = _old\n", AT_RUN_TIME),
        ("old", "", AT_RUN_TIME),
        ("old", "if __name__ == '__main__':\n    print()\n", NOTHING),
        ("old", "if __name__ == '__main__':\n    old(1)\n", AT_RUN_TIME),
        ("old", "if __name__ == '__main__':\n    globals()[input()]()\n", AT_RUN_TIME),
    ],
)
def test_functions_that_nothing_calls_gain_nothing(
    tmp_path: Path, name: str, rest: str, expected: tuple[str, str]
) -> None:
    text = f"{HEAD}def {name}(data):\n    return DataLoader(data, batch_size=4)\n\n{rest}"
    assert gains(tmp_path, train=text) == [expected]
    write_files(tmp_path / "project", {"train.py": text, "other.py": f"from train import {name}\n"})
    assert [one["status"] for one in loaders(tmp_path / "project")] == ["rewrite"]


def test_a_project_that_gains_nothing_is_given_all_advice(tmp_path: Path) -> None:
    loop = """    for x, y in loader:
        x = x.to(device)
        loss = model(x).sum()
        loss.backward()
        total += loss.item()
"""
    head = f"{HEAD}from data import Pictures\n\ndef train(model, device, total=0):\n"
    text = f"{head}    loader = DataLoader(Pictures([]), 4)\n{loop}"
    root = write_files(tmp_path, {"data.py": PICTURES, "train.py": text, "requirements.txt": "torch\n"})
    before = snapshot(root)
    shown = " ".join(run("apply", root).stdout.split())
    assert snapshot(root) == before
    assert "no loader here gains from a migration" in shown and "chirp-migrate tune" in shown
    assert "CHP025 train.py:13: every step waits for the GPU in `loss.item()`;" in shown


def test_reason_and_line_stand_beside_each_loader(tmp_path: Path) -> None:
    text = f"{HEAD}from data import Pictures\n\ndata = TensorDataset(torch.zeros(3))\na = DataLoader(data, 4)\n"
    root = write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": f"{text}b = DataLoader(Pictures([]))\n"})
    first, second = loaders(root)
    assert first["gain"] == {
        "kind": "batched-reading",
        "why": "the samples are in memory",
        "path": "train.py",
        "line": 7,
    }
    assert second["gain"] == {"kind": "nothing", "why": "samples are read one by one", "path": "data.py", "line": 14}
    assert "batched reading" in run("plan", root).stdout
    assert (
        "gain: batched reading (the samples are in memory, train.py:7)" in run("plan", "-v", root, COLUMNS="200").stdout
    )
    shown = run("review", "--plan", tmp_path / "plan.json", root, answers="q\n", COLUMNS="200").stdout
    assert "gain: batched reading (the samples are in memory, train.py:7)" in " ".join(shown.split())
    page = tmp_path / "report.html"
    run("apply", root)
    run("report", "-o", page, root)
    assert "gain: batched reading" in page.read_text(encoding="utf-8")


def test_a_setting_rewrites_all_loaders_and_the_command_line_goes_first(tmp_path: Path) -> None:
    text = f"{HEAD}from data import Pictures\n\na = DataLoader(Pictures([]))\n"
    settings = "[tool.chirp-migrate]\nall-loaders = true\n"
    root = write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": text, "pyproject.toml": settings})
    assert [one["status"] for one in loaders(root)] == ["rewrite"]
    assert [one["status"] for one in loaders(root, "--no-all-loaders")] == ["unchanged"]


def test_a_migrated_call_is_no_gain_for_a_stored_class(tmp_path: Path) -> None:
    body = "kind = DataLoader if data else None\na = DataLoader(data, 4)\nb = kind(x)\n"
    root = write_files(tmp_path / "mine", {"train.py": f"{HEAD}data = TensorDataset(torch.zeros(3))\n{body}"})
    assert [one["status"] for one in loaders(root)] == ["unchanged", "rewrite"]
    assert run("apply", root).exit_code == 0
    assert [one["status"] for one in loaders(root)] == ["unchanged", "fine"]


@pytest.mark.parametrize(
    ("data", "expected"), [("TensorDataset(x)", ("batched-reading", "rewrite")), ("Pictures([])", NOTHING)]
)
def test_a_local_variable_may_have_the_name_of_the_class(tmp_path: Path, data: str, expected: tuple[str, str]) -> None:
    text = (
        "import torch\nfrom data import Pictures\nfrom torch.utils.data import TensorDataset\n\n\ndef make(x, own):\n"
        "    DataLoader = own\n    if own is None:\n        DataLoader = torch.utils.data.DataLoader\n"
        f"    return DataLoader({data}, batch_size=4)\n"
    )
    (found,) = loaders(write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": text}))
    assert (found["gain"]["kind"], found["status"]) == expected


@pytest.mark.parametrize(
    "code",
    [
        "def make(x, DataLoader=DataLoader):\n    return DataLoader(TensorDataset(x), 64)\n",
        "class Run:\n    def __init__(self):\n        self.DataLoader = partial(DataLoader, batch_size=64)\n"
        "    def make(self, x):\n        return self.DataLoader(TensorDataset(x))\n",
        "make = partial(DataLoader, TensorDataset(torch.zeros(9)))\nloader = make(64, True)\n",
    ],
)
def test_a_stored_class_counts_by_any_name(tmp_path: Path, code: str) -> None:
    root = write_files(tmp_path / "mine", {"train.py": f"from functools import partial\n{HEAD}{code}"})
    assert [one["status"] for one in loaders(root)] == ["rewrite"]


def test_a_migrated_project_says_the_same_again(tmp_path: Path) -> None:
    body = "a = DataLoader(data, 4)\nb = DataLoader(Pictures([]))\nc = DataLoader(Pictures([]), num_workers=2)\n"
    text = f"{HEAD}from data import Pictures\n\ndata = TensorDataset(torch.zeros(3))\n{body}"
    root = write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": text})
    assert [one["gain"]["kind"] for one in loaders(root)] == ["batched-reading", "nothing", "nothing"]
    assert run("apply", root).exit_code == 0
    assert [one["status"] for one in loaders(root)] == ["fine", "unchanged", "unchanged"]
    before = snapshot(root)
    assert run("apply", root).exit_code == 0 and snapshot(root) == before


TRAIN = """{head}from data import Pictures

def run_epoch(model, loader, device):
    for x, y in loader:
        {copy}
        {then}

def train(model, paths, pin, device="cuda"):
    pin_memory = torch.cuda.is_available()
    loader = DataLoader({dataset}, batch_size=4{pinning})
    run_epoch(model, loader, device)
"""


def migrated_transfer(root: Path, **parts: str) -> str:
    """A training loop after ``apply``."""
    parts = {"copy": "x = x.to(device)", "then": "model(x).backward()", "dataset": "paths", **parts}
    write_files(root, {"data.py": PICTURES, "train.py": TRAIN.format(head=HEAD, **parts)})
    assert run("apply", root).exit_code == 0
    return (root / "train.py").read_text()


PINNING = [
    ", pin_memory=True",
    ", pin_memory=torch.cuda.is_available()",
    ", pin_memory=pin_memory",
    ", pin_memory=torch.device(device).type == 'cuda'",
    ", pin_memory=True if torch.cuda.is_available() else False",
]


@pytest.mark.parametrize("pinning", PINNING)
def test_batches_from_pinned_memory_are_copied_without_blocking(tmp_path: Path, pinning: str) -> None:
    after = migrated_transfer(tmp_path, pinning=pinning)
    assert "x.to(device, non_blocking=True)" in after and "OptimalDataLoaderFactory" in after
    assert [one["status"] for one in loaders(tmp_path)] == ["fine"]


@pytest.mark.parametrize(
    ("dataset", "collation"),
    [("Pictures(paths)", ""), ("paths", ", collate_fn=padded"), ("TensorDataset(paths)", ", collate_fn=padded")],
)
@pytest.mark.parametrize("pinning", PINNING)
def test_a_loader_that_pins_its_batches_itself_gains_no_pinned_transfers(
    tmp_path: Path, pinning: str, dataset: str, collation: str
) -> None:
    text = TRAIN.format(
        head=f"{HEAD}from data import padded\n",
        copy="x = x.to(device)",
        then="model(x)",
        dataset=dataset,
        pinning=pinning + collation,
    )
    assert gains(tmp_path, train=text) == [NOTHING]
    copies = loaders(tmp_path / "project", rule="CHP013")
    assert [(one["gain"]["kind"], one["status"]) for one in copies] == [NOTHING]


def test_copies_from_a_loader_of_the_factory_need_no_other_gain(tmp_path: Path) -> None:
    text = TRAIN.format(
        head=f"{HEAD}from chirpid_patch import OptimalDataLoaderFactory\n",
        copy="x = x.to(device)",
        then="model(x)",
        dataset="Pictures(paths)",
        pinning=", pin_memory=True",
    ).replace(" DataLoader(", " OptimalDataLoaderFactory.create_loader(")
    write_files(tmp_path / "project", {"data.py": PICTURES, "train.py": text})
    copies = loaders(tmp_path / "project", rule="CHP013")
    assert [(one["gain"]["kind"], one["status"]) for one in copies] == [("pinned-transfers", "rewrite")]


@pytest.mark.parametrize(
    ("image", "kind", "status"),
    [("image", "pinned-transfers", "rewrite"), ("locals()", "nothing", "unchanged")],
)
def test_copies_follow_a_loader_whose_workers_become_startable(
    tmp_path: Path, image: str, kind: str, status: str
) -> None:
    dataset = f"Pictures(paths, lambda image: {image})"
    text = TRAIN.format(
        head=HEAD, copy="x = x.to(device)", then="model(x)", dataset=dataset, pinning=", pin_memory=True, num_workers=2"
    )
    write_files(tmp_path / "project", {"data.py": PICTURES, "train.py": text})
    copies = loaders(tmp_path / "project", rule="CHP013")
    assert [(one["gain"]["kind"], one["status"]) for one in copies] == [(kind, status)]
    assert [one["status"] for one in loaders(tmp_path / "project")] == [status]


@pytest.mark.parametrize(
    ("pinning", "expected"), [("", ("pinned-transfers", "rewrite")), (", pin_memory=True", NOTHING)]
)
def test_single_samples_that_only_the_factory_pins_are_a_gain(
    tmp_path: Path, pinning: str, expected: tuple[str, str]
) -> None:
    text = TRAIN.format(
        head=HEAD, copy="x = x.to(device)", then="model(x)", dataset="TensorDataset(paths)", pinning=pinning
    )
    assert gains(tmp_path, train=text.replace("batch_size=4", "batch_size=1")) == [expected]


@pytest.mark.parametrize(("size", "expected"), [("1", NOTHING), ("2", BATCHED)])
def test_single_samples_in_memory_are_no_evidence(tmp_path: Path, size: str, expected: tuple[str, str]) -> None:
    calls = "train(TensorDataset(torch.arange(9)))\ntrain(load())\n"
    text = f"{HEAD}def train(data):\n    return DataLoader(data, batch_size={size})\n\n\n{calls}"
    assert gains(tmp_path, train=text) == [expected]


@pytest.mark.parametrize(
    ("then", "expected"), [("model(x)", ("pinned-transfers", "rewrite")), ("total = x.sum().item()", NOTHING)]
)
def test_only_the_loop_over_a_loader_decides_on_its_copies(
    tmp_path: Path, then: str, expected: tuple[str, str]
) -> None:
    other = "def evaluate(model, val_loader):\n    for x in val_loader:\n        model(x)\n\n"
    text = TRAIN.format(
        head=HEAD + other, copy="x = x.to(device)", then=then, dataset="TensorDataset(paths)", pinning=""
    )
    assert gains(tmp_path, train=text.replace("batch_size=4", "batch_size=1")) == [expected]


@pytest.mark.parametrize(
    ("pinning", "dataset"),
    [("", "TensorDataset(paths)"), (", pin_memory=None", "Subset(TensorDataset(paths), [0])")],
)
def test_the_factory_pins_the_batches_that_it_allocates(tmp_path: Path, pinning: str, dataset: str) -> None:
    assert "non_blocking=True" in migrated_transfer(tmp_path, pinning=pinning, dataset=dataset)


@pytest.mark.parametrize(
    ("pinning", "dataset"),
    [
        ("", "Pictures(paths)"),
        (", pin_memory=False", "TensorDataset(paths)"),
        (", pin_memory=pin", "Pictures(paths)"),
        (", pin_memory=False", "Pictures(paths)"),
    ],
)
def test_copies_of_what_may_not_be_pinned_stay_as_they_are(tmp_path: Path, pinning: str, dataset: str) -> None:
    assert "non_blocking" not in migrated_transfer(tmp_path, pinning=pinning, dataset=dataset)


@pytest.mark.parametrize(
    ("dataset", "is_there"),
    [
        ("TensorDataset(paths.to(device), pin.to(device))", True),
        ("Subset(TensorDataset(paths.cuda()), [0])", True),
        ("TensorDataset(torch.zeros(9, device='cuda'))", True),
        ("TensorDataset(paths.to(torch.float32))", False),
        ("TensorDataset(paths.to('cpu'))", False),
        ("TensorDataset(torch.zeros(9, device='cpu'))", False),
    ],
)
def test_samples_that_are_on_the_device_need_no_copies(tmp_path: Path, dataset: str, is_there: bool) -> None:
    loop = "    for x, y in loader:\n        x = x.to(device)\n        model(x).backward()\n"
    train = TRAIN[TRAIN.index("def train") :].replace("    run_epoch(model, loader, device)\n", loop)
    write_files(tmp_path, {"train.py": HEAD + train.format(dataset=dataset, pinning="")})
    assert run("apply", tmp_path).exit_code == 0
    after = (tmp_path / "train.py").read_text()
    assert "OptimalDataLoaderFactory" in after and ("non_blocking=True" not in after) is is_there
    assert (not loaders(tmp_path, rule="CHP024")) is is_there
    assert run("apply", "--all-loaders", tmp_path).exit_code == 0
    assert ("non_blocking=True" not in (tmp_path / "train.py").read_text()) is is_there


CHAIN = """import torch

def noise(x):
    return x + torch.randn_like(x)

class Chain:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for each in self.transforms:
            x = each(x)
        return x
"""


@pytest.mark.parametrize(
    ("files", "is_decorated"),
    [
        ({}, False),
        ({"tests/test_a.py": f"{HEAD}DataLoader([1, 2], batch_size=2)\n"}, False),
        ({"train.py": f"{HEAD}from data import Pictures\n\nDataLoader(Pictures([]), batch_size=2)\n"}, False),
        ({"train.py": f"{HEAD}\ndef train(data):\n    return DataLoader(data, batch_size=2)\n"}, True),
    ],
)
def test_transforms_are_declared_for_loaders_that_build_batches(
    tmp_path: Path, files: dict[str, str], is_decorated: bool
) -> None:
    root = write_files(tmp_path, {"data.py": PICTURES, "transforms.py": CHAIN, **files})
    assert run("apply", root).exit_code == 0
    assert ("@composes_transforms" in (root / "transforms.py").read_text()) is is_decorated


@pytest.mark.parametrize(
    ("copy", "then", "added"),
    [
        ("x = x.to(device)", "total = x.sum().item()", False),
        ("total = x.to(device).sum().item()", "", False),
        ("x = x.to(device)", "total = model(x).sum().item()", True),
        ("x = x.to(device)", "model(x).backward(); total = x.sum().item()", True),
    ],
)
def test_a_loop_that_waits_for_the_copy_at_once_gains_nothing(
    tmp_path: Path, copy: str, then: str, added: bool
) -> None:
    after = migrated_transfer(tmp_path, copy=copy, then=then, pinning=", pin_memory=True")
    assert ("non_blocking=True" in after) is added


def test_another_loader_of_the_loop_that_pins_is_no_gain(tmp_path: Path) -> None:
    text = TRAIN.format(head=HEAD, copy="x = x.to(device)", then="model(x)", dataset="Pictures(paths)", pinning="")
    more = "    other = DataLoader(paths, batch_size=4, pin_memory=True)\n    run_epoch(model, other, device)\n"
    assert gains(tmp_path, train=text + more) == [NOTHING, AT_RUN_TIME]
    (copy,) = loaders(tmp_path / "project", rule="CHP013")
    assert (copy["gain"]["kind"], copy["gain"]["line"]) == ("pinned-transfers", 16)


def test_lambdas_stay_where_no_loader_of_the_project_has_workers(tmp_path: Path) -> None:
    text = f"{HEAD}from data import Pictures\n\ndef build(paths):\n    return Pictures(paths, transform=lambda x: x)\n"
    root = write_files(tmp_path, {"data.py": PICTURES, "build.py": text})
    assert run("apply", root).exit_code == 0 and (root / "build.py").read_text() == text
    write_files(root, {"train.py": f"{HEAD}import build\n\nDataLoader(build.build([]), 4, num_workers=2)\n"})
    assert run("apply", root).exit_code == 0 and "lambda" not in (root / "build.py").read_text()


@pytest.mark.parametrize(
    "held",
    [
        "transform = lambda x: x",
        "def transform(x):\n        return x",
        "class Local(Dataset):\n        def __getitem__(self, index):\n            return open(str(index))",
    ],
)
@pytest.mark.parametrize(
    ("near", "is_moved"),
    [
        ("", False),
        ("def load(data, num_workers=0):\n    return data\n\n", False),
        ("def load(data, num_workers=4):\n    return data\n\n", True),
        ("import settings\n", True),
        ("from settings import num_workers\n", True),
    ],
)
def test_the_file_decides_on_objects_of_unknown_loaders(tmp_path: Path, held: str, near: str, is_moved: bool) -> None:
    made = "Local()" if "class" in held else "data.Pictures(paths, transform)"
    text = f"from torch.utils.data import Dataset\nimport data\n{near}"
    text += f"\n\ndef build(paths):\n    {held}\n    return {made}\n"
    other = f"{HEAD}from data import Stream\n\nDataLoader(Stream(), 4, num_workers=2)\n"
    files = {"data.py": PICTURES, "settings.py": "num_workers = 4\n", "build.py": text, "train.py": other}
    root = write_files(tmp_path, files)
    assert run("apply", root).exit_code == 0
    assert ((root / "build.py").read_text() != text) is is_moved


@pytest.mark.parametrize(("user", "is_moved"), [("tests/test_build.py", False), ("usage.py", True)])
def test_loaders_of_tests_move_no_objects_of_other_code(tmp_path: Path, user: str, is_moved: bool) -> None:
    text = "from data import Pictures\n\ndef build(paths):\n    return Pictures(paths, transform=lambda x: x)\n"
    use = f"{HEAD}import build\n\nDataLoader(build.build([]), 4, num_workers=2)\n"
    root = write_files(tmp_path, {"data.py": PICTURES, "build.py": text, user: use})
    assert run("apply", root).exit_code == 0
    assert ("lambda" not in (root / "build.py").read_text()) is is_moved


def test_a_loader_and_the_copies_of_its_batches_are_one_hunk(tmp_path: Path) -> None:
    text = TRAIN.format(
        head=HEAD, copy="x = x.to(device)", then="model(x)", dataset="paths", pinning=", pin_memory=True"
    )
    root = write_files(tmp_path / "mine", {"data.py": PICTURES, "train.py": text})
    done = run("review", "--plan", tmp_path / "plan.json", root, answers="n\n")
    assert "1 hunk to decide" in done.stdout and "0 accepted, 1 refused" in done.stdout


def test_the_gain_of_a_loader_does_not_depend_on_the_loaders_before_it(tmp_path: Path) -> None:
    head = f"{HEAD}from data import Pictures\n\nclass Trainer:\n    def __init__(self, first, second):\n"
    text = f"{head}        self.first, self.second = first, second\n"
    for name in ("first", "second"):
        text += f"    def load_{name}(self):\n        return DataLoader(self.{name}, batch_size=4)\n"
    text += 'print("Trainer")\ntrainer = Trainer(Pictures([]), Pictures([]))\n'
    text += "print(*trainer.load_first(), *trainer.load_second())\n"
    assert gains(tmp_path, train=text) == [AT_RUN_TIME, AT_RUN_TIME]


def test_workers_stay_unpicklable_if_only_some_objects_move(tmp_path: Path) -> None:
    text = f"""{HEAD}
def make(names):
    class Local(IterableDataset):
        def __init__(self, transform=None):
            self.transform = transform or (lambda x: x)

        def __iter__(self):
            return map(self.transform, names)

    return Local


print(*DataLoader(make("ab")(), batch_size=4, num_workers=2))
"""
    assert gains(tmp_path, train=text) == [NOTHING]
    (moved,) = loaders(tmp_path / "project", rule="CHP007")
    assert (moved["status"], moved["gain"]["kind"]) == ("rewrite", "picklable-workers")
    assert moved["gain"]["why"] == "a loader pickles this object for workers that start without `fork`"

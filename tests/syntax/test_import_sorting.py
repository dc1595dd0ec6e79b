"""The import that rewritten code needs is where the project's own tools would put it, as they would write it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import isort
import pytest
from ruff import find_ruff_bin

from chirp_migrate.engine.migration import plan_migration
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.engine.settings import Settings
from chirp_migrate.syntax.project import Project

MODULE = '''"""Training of a bird-sound classifier."""

from __future__ import annotations

import argparse
import os.path
from collections import Counter

import numpy as np
import torch
from numpy.random import default_rng
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from birds.models import BirdCNN, load_weights
from birds.utils import log

from .config import read_config


def train(x, y, epochs):
    """Train, one epoch after the other."""
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, num_workers=2)
    model, criterion = BirdCNN(), nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters())
    for _ in tqdm(range(epochs)):
        for inputs, labels in loader:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()
    log(Counter(y.tolist()), default_rng, np, os, argparse, torch, read_config, load_weights)
'''

ISORT = {
    "beside black": ("pyproject.toml", '[tool.isort]\nprofile = "black"\n'),
    "google": (".isort.cfg", "[settings]\nprofile = google\n"),
    "one name a line": ("setup.cfg", "[isort]\nforce_single_line = True\nline_length = 79\n"),
    "by module": ("tox.ini", "[isort]\nforce_sort_within_sections = 1\nlexicographical = 1\n"),
    "headings": ("pyproject.toml", '[tool.isort]\nimport_heading_thirdparty = "Others"\nlines_between_types = 1\n'),
    "own sections": (
        "pyproject.toml",
        '[tool.isort]\nknown_torch = ["torch"]\nsections = ["FUTURE", "STDLIB", "TORCH", "THIRDPARTY", "FIRSTPARTY", '
        '"LOCALFOLDER"]\n',
    ),
    "no sections": (".isort.cfg", "[settings]\nno_sections = true\n"),
}
RUFF = {
    "plain": ("pyproject.toml", '[tool.ruff.lint]\nselect = ["I"]\n'),
    "one name a line": ("ruff.toml", '[lint]\nselect = ["I"]\n[lint.isort]\nforce-single-line = true\n'),
    "by module": (".ruff.toml", '[lint]\nselect = ["I"]\n[lint.isort]\nforce-sort-within-sections = true\n'),
    "own sections": (
        "pyproject.toml",
        '[tool.ruff.lint]\nselect = ["I"]\n[tool.ruff.lint.isort]\nsection-order = ["future", "standard-library", '
        '"torch", "third-party", "first-party", "local-folder"]\nsections = { torch = ["torch", "chirpid_patch"] }\n',
    ),
    "sources elsewhere": (
        "pyproject.toml",
        '[tool.ruff]\nsrc = ["lib"]\nline-length = 60\n[tool.ruff.lint]\nselect = ["I"]\n',
    ),
    "no type order": (
        "pyproject.toml",
        '[tool.ruff.lint]\nselect = ["I"]\n[tool.ruff.lint.isort]\norder-by-type = false\nlines-between-types = 1\n',
    ),
}


def project(folder: Path, settings: tuple[str, str]) -> Path:
    """A package with these settings; the module that is to be migrated."""
    (folder / settings[0]).write_text(settings[1], encoding="utf-8")
    for name in ("__init__", "models", "utils", "config"):
        file = folder / "birds" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.touch()
    module = folder / "birds" / "training.py"
    module.write_text(MODULE, encoding="utf-8")
    return module


def migrate(folder: Path, module: Path) -> str:
    """The module as it is written after the migration."""
    (file,) = plan_tree(folder).files
    module.write_bytes(file.after)
    text = module.read_text(encoding="utf-8")
    assert "from chirpid_patch import OptimalDataLoaderFactory" in text
    return text


def is_sorted(folder: Path, module: Path) -> bool:
    """Whether isort would leave the module alone."""
    return isort.check_file(module, config=isort.Config(settings_path=str(folder)))


def ruff(module: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [find_ruff_bin(), "check", "--no-cache", *arguments, module.name]
    return subprocess.run(command, cwd=module.parent, check=False, capture_output=True, encoding="utf-8")


@pytest.mark.parametrize("settings", ISORT.values(), ids=ISORT)
def test_isort_leaves_alone_what_it_had_sorted(settings: tuple[str, str], tmp_path: Path) -> None:
    module = project(tmp_path, settings)
    isort.file(module, config=isort.Config(settings_path=str(tmp_path)))
    assert is_sorted(tmp_path, module)
    migrate(tmp_path, module)
    assert is_sorted(tmp_path, module)


@pytest.mark.parametrize("settings", RUFF.values(), ids=RUFF)
def test_ruff_leaves_alone_what_it_had_sorted(settings: tuple[str, str], tmp_path: Path) -> None:
    module = project(tmp_path, settings)
    ruff(module, "--fix")
    assert ruff(module).returncode == 0
    text = migrate(tmp_path, module)
    found = ruff(module)
    assert found.returncode == 0, f"{found.stdout}\n{text}"


def test_what_is_not_sorted_stays_as_it_is(tmp_path: Path) -> None:
    module = project(tmp_path, ISORT["beside black"])
    unsorted = MODULE.replace("import argparse\nimport os.path\n", "import os.path\nimport argparse\n")
    module.write_text(unsorted, encoding="utf-8")
    before, after = unsorted.splitlines(), migrate(tmp_path, module).splitlines()
    new = "from chirpid_patch import OptimalDataLoaderFactory"
    assert after.index(new) == after.index("from torch.utils.data import TensorDataset") + 1
    imports = after.index("def train(x, y, epochs):")
    assert [one for one in after[:imports] if one != new] == [
        one.replace("DataLoader, ", "") for one in before[: before.index("def train(x, y, epochs):")]
    ]


def test_names_are_added_in_order(tmp_path: Path) -> None:
    module = project(tmp_path, ISORT["beside black"])
    shipped = "import torch\nfrom chirpid_patch import (\n    DataLoaderPerformanceMonitor,\n    SpecAugment,\n)\n"
    text = MODULE.replace("import torch\n", shipped).replace(
        "log(Counter", "log(DataLoaderPerformanceMonitor, SpecAugment, Counter"
    )
    module.write_text(text, encoding="utf-8")
    isort.file(module, config=isort.Config(settings_path=str(tmp_path)))
    (file,) = plan_tree(tmp_path).files
    module.write_bytes(file.after)
    assert is_sorted(tmp_path, module)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "(\n    BatchedDataLoader,  # batches\n    SpecAugment,  # masks\n)",
            "(\n    BatchedDataLoader,  # batches\n    OptimalDataLoaderFactory,\n    SpecAugment,  # masks\n)",
        ),
        (
            "(\n    BatchedDataLoader,\n    MemoryWatch  # the last\n)",
            "(\n    BatchedDataLoader,\n    MemoryWatch,  # the last\n    OptimalDataLoaderFactory,\n)",
        ),
        (
            "(\n    BatchedDataLoader,  # batches\n    # masks\n    SpecAugment,\n)",
            "(\n    BatchedDataLoader,  # batches\n    OptimalDataLoaderFactory,\n    # masks\n    SpecAugment,\n)",
        ),
        (
            "(BatchedDataLoader,  # batches\n  SpecAugment)",
            "(BatchedDataLoader,  # batches\n                           OptimalDataLoaderFactory,\n  SpecAugment)",
        ),
        (
            "(\n    SpecAugment,  # masks\n)",
            "(\n    OptimalDataLoaderFactory,\n    SpecAugment,  # masks\n)",
        ),
        ("MemoryWatch  # both", "MemoryWatch, OptimalDataLoaderFactory  # both"),
    ],
    ids=["between", "last", "comment above", "one after the other", "first", "one line"],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_comment_stays_with_its_name(before: str, after: str, newline: str, tmp_path: Path) -> None:
    """A name that is added to those on lines of their own gets one, too."""
    rest = "def make(dataset):\n    return {}(dataset, batch_size=4, shuffle=True)\n"
    head = f"from chirpid_patch import {before}\nfrom torch.utils.data import DataLoader\n"
    (tmp_path / "train.py").write_bytes((head + rest.format("DataLoader")).replace("\n", newline).encode())
    (file,) = plan_tree(tmp_path).files
    written = file.after.decode()
    assert written.startswith(f"from chirpid_patch import {after}\ndef".replace("\n", newline))
    compile(written, "train.py", "exec")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "(\n    DataLoader,  # loads\n    # in memory\n    TensorDataset,\n)",
            "(\n    # in memory\n    TensorDataset,\n)",
        ),
        (
            "(\n    TensorDataset,  # in memory\n    # loads\n    DataLoader,  # batches\n)",
            "(\n    TensorDataset,  # in memory\n)",
        ),
        ("(TensorDataset,  # in memory\n    DataLoader)", "(TensorDataset,  # in memory\n    )"),
        ("(\n    Subset,\n    DataLoader,  # loads\n    TensorDataset)", "(\n    Subset,\n    TensorDataset)"),
        ("TensorDataset, DataLoader  # both", "TensorDataset  # both"),
    ],
    ids=["above the next", "behind the one before", "no line of its own", "between", "one line"],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_name_that_goes_takes_its_own_comment_along(before: str, after: str, newline: str, tmp_path: Path) -> None:
    rest = "def make(x):\n    return {}(TensorDataset(Subset(x, [0])), batch_size=4, shuffle=True)\n"
    head = f"from torch.utils.data import {before}\n"
    (tmp_path / "train.py").write_bytes((head + rest.format("DataLoader")).replace("\n", newline).encode())
    (file,) = plan_tree(tmp_path).files
    assert f"from torch.utils.data import {after}\n".replace("\n", newline) in file.after.decode()
    compile(file.after, "train.py", "exec")


def test_an_import_that_gets_a_line_of_its_own_ends_as_the_others_do(tmp_path: Path) -> None:
    text = (
        "from chirpid_patch import read_labels as r\n\n\ndef f(dataset):\n    return [int(y) for _, y in dataset], r\n"
    )
    (tmp_path / "train.py").write_bytes(text.replace("\n", "\r\n").encode())
    (file,) = plan_tree(tmp_path).files
    assert file.after.count(b"\r\n") == file.after.count(b"\n") == text.count("\n") + 1


@pytest.mark.parametrize(
    "settings",
    ["tool = 3", "[tool]\nblack = 3", "[tool]\nruff = 3", "[tool.ruff]\nlint = 3", "[tool.ruff.lint]\nselect = 3"],
)
def test_settings_of_a_wrong_type_keep_no_file_from_its_rewrite(settings: str, tmp_path: Path) -> None:
    migrate(tmp_path, project(tmp_path, ("pyproject.toml", settings)))


def test_sections_of_ruff_that_isort_needs_and_does_not_get_are_told(tmp_path: Path) -> None:
    module = project(
        tmp_path, ("ruff.toml", '[lint.isort]\nsection-order = ["future", "third-party", "first-party"]\n')
    )
    (note,) = plan_tree(tmp_path).notes
    assert "section-order lacks standard-library, local-folder" in note
    migrate(tmp_path, module)


def test_settings_that_isort_refuses_are_told(tmp_path: Path) -> None:
    module = project(tmp_path, (".isort.cfg", "[settings]\nprofile = nobodys\n"))
    plan = plan_tree(tmp_path)
    assert (
        [note for note in plan.notes if "profile of nobodys does not exist" in note.lower()] == list(plan.notes) != []
    )
    migrate(tmp_path, module)


@pytest.mark.parametrize("settings", [ISORT["beside black"], RUFF["plain"]], ids=["isort", "ruff"])
def test_a_vendored_runtime_stands_with_the_projects_own_packages(settings: tuple[str, str], tmp_path: Path) -> None:
    module = project(tmp_path, settings)
    plan = plan_migration(tmp_path, settings=Settings(vendor=True))
    for file in plan.files:
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_bytes(file.after)
    assert "\nfrom birds.utils import log\nfrom chirpid_patch import" in module.read_text(encoding="utf-8")
    assert is_sorted(tmp_path, module) if settings in ISORT.values() else ruff(module).returncode == 0


def test_a_project_that_sorts_with_ruff_is_served_beside_stale_settings_of_isort(tmp_path: Path) -> None:
    stale = '[tool.isort]\nprofile = "google"\n'
    name, content = RUFF["no type order"]
    module = project(tmp_path, (name, content + stale))
    ruff(module, "--fix")
    migrate(tmp_path, module)
    assert ruff(module).returncode == 0


def test_a_section_that_goes_leaves_one_blank_line(tmp_path: Path) -> None:
    module = project(tmp_path, ISORT["beside black"])
    module.write_text(
        "import os\n\nfrom torch.utils.data import DataLoader\n\nfrom birds import utils\n\n\n"
        "def make(data):\n    return DataLoader(data), os, utils\n",
        encoding="utf-8",
    )
    plan = plan_migration(tmp_path, settings=Settings(vendor=True))
    (after,) = (file.after.decode() for file in plan.files if file.path == "birds/training.py")
    imports = "import os\n\nfrom birds import utils\nfrom chirpid_patch import OptimalDataLoaderFactory\n\n\ndef make"
    assert after.startswith(imports)


@pytest.mark.parametrize(
    "guarded",
    [
        "if TYPE_CHECKING:\n    from functools import reduce\n",
        "if TYPE_CHECKING:\n    from functools import partial\n",
        "if typing.TYPE_CHECKING:\n    import functools\n",
        "if TYPE_CHECKING:\n    from chirpid_patch import OptimalDataLoaderFactory\n",
        "if TYPE_CHECKING:\n    from chirpid_patch import BatchedDataLoader\n",
        "if sys.platform == 'nowhere':\n    from functools import partial\n",
        "if sys.platform == 'nowhere':\n    from functools import reduce\n",
    ],
)
def test_an_import_that_is_not_always_run_is_not_relied_upon(tmp_path: Path, guarded: str) -> None:
    head = "import sys\nimport typing\nfrom typing import TYPE_CHECKING\n\nfrom torch.utils.data import DataLoader\n\n"
    use = "\n\ndef loader(rows, most):\n    return DataLoader(rows, batch_size=4, collate_fn=lambda b: b[:most])\n"
    (tmp_path / "train.py").write_text(head + guarded + use)
    (migrated,) = plan_tree(tmp_path, jobs=1).files
    names: dict[str, Any] = {"__name__": "train"}
    exec(compile(migrated.after, "train.py", "exec"), names)
    assert list(names["loader"]([1, 2, 3, 4, 5], 2)) == [[1, 2], [5]]


NEW = "from chirpid_patch import OptimalDataLoaderFactory\n"


def placed(imports: str, name: str = "DataLoader", *, more: str = "") -> str:
    """The imports after a migration of a file that makes one loader."""
    text = f"{imports}\n\ndef f(d):\n    return {name}(d, 4)\n{more}"
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}))
    return after.partition("\n\ndef f(d)")[0]


@pytest.mark.parametrize(
    ("imports", "after"),
    [
        ("import os\nfrom torch.utils.data import DataLoader\nfrom x import y\n", f"import os\n{NEW}from x import y\n"),
        ("import os\n\nfrom torch.utils.data import DataLoader\n\nimport x\n", f"import os\n\n{NEW}\nimport x\n"),
        ("# data\nfrom torch.utils.data import DataLoader\n# model\nimport m\n", f"# data\n{NEW}# model\nimport m\n"),
    ],
)
def test_the_import_takes_the_place_of_the_one_that_goes(imports: str, after: str) -> None:
    assert placed(imports) == after


@pytest.mark.parametrize(
    ("imports", "after"),
    [
        (
            "import numpy\nfrom torch.utils.data import DataLoader, Dataset\nimport os\n",
            f"import numpy\nfrom torch.utils.data import Dataset\n{NEW}import os\n",
        ),
        # Imports of torch that follow one another stay together.
        (
            "import torch\nfrom torch.utils.data import DataLoader\nfrom torch import nn\nimport os\n",
            f"import torch\nfrom torch import nn\n{NEW}import os\n",
        ),
        (
            "import torch\nfrom torch.utils.data import DataLoader, Dataset\n",
            f"import torch\nfrom torch.utils.data import Dataset\n{NEW}",
        ),
        (
            "from torch.utils.data import DataLoader, Dataset\n# The model.\nfrom model import Net\n",
            f"from torch.utils.data import Dataset\n{NEW}# The model.\nfrom model import Net\n",
        ),
    ],
)
def test_an_import_that_stays_has_the_new_one_below(imports: str, after: str) -> None:
    assert placed(imports, more="x: Dataset\n") == after


def test_a_class_of_the_project_with_the_same_name_does_not_attract_the_import() -> None:
    torch, own = "import torch\nfrom torch.utils.data import Dataset\n", "\nfrom own.loading import DataLoader\n"
    more = "x: Dataset\ny: DataLoader\nz = torch.ones\n"
    assert placed(torch + own, "torch.utils.data.DataLoader", more=more) == torch + NEW + own


@pytest.mark.parametrize(
    ("imports", "name", "more", "after"),
    [
        (
            "import torch\nimport torch.utils.data\n",
            "torch.utils.data.DataLoader",
            "torch.rand(1)\n",
            f"import torch\n{NEW}",
        ),
        ("import torch\nfrom torch.utils.data import *\n", "DataLoader", "torch.rand(1)\n", f"import torch\n{NEW}"),
        ("import torch.utils.data as tud\nimport os\n", "tud.DataLoader", "", f"{NEW}import os\n"),
        ("from torch.utils import data\nimport os\n", "data.DataLoader", "", f"{NEW}import os\n"),
    ],
)
def test_what_gave_nothing_but_the_class_goes(imports: str, name: str, more: str, after: str) -> None:
    assert placed(imports, name, more=more) == after


@pytest.mark.parametrize(
    ("imports", "name", "more"),
    [
        ("import torch\nimport torch.utils.data\n", "torch.utils.data.DataLoader", "x: torch.utils.data.Dataset\n"),
        ("import torch\nimport torch.utils.data\n", "torch.utils.data.DataLoader", "x: 'torch.utils.data.Dataset'\n"),
        ("import torch.utils.data\n", "torch.utils.data.DataLoader", "torch.rand(1)\n"),
        ("from torch.utils.data import *\n", "DataLoader", "x = Subset(y, [0])\n"),
        ("from torch.utils.data import *\n", "DataLoader", "x = 'DataLoader(d)'\n"),
    ],
)
def test_what_still_gives_something_stays(imports: str, name: str, more: str) -> None:
    assert placed(imports, name, more=more) == imports + NEW


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        ("def fit():\n    names = locals()\n", False),
        ("def fit():\n    return [vars(), dir()]\n", False),
        ("class Model:\n    def fit(self, names=()):\n        return [locals() for one in names]\n", False),
        ("show = lambda: locals()\n", False),
        ("names = vars(torch)\n", False),
        ("model.eval(name)\n", False),
        ("def eval(model):\n    return model\n\nmodel = eval(model)\n", False),
        ("size = eval('3 + 4')\n", False),
        ("names = locals()\n", True),
        ("names = [vars(), dir()]\n", True),
        ("class Model:\n    names = locals()\n", True),
        ("def fit(names=locals()):\n    return names\n", True),
        ("def fit(name):\n    return globals()[name]\n", True),
        ("def fit(name):\n    return eval(name)\n", True),
        ("def fit(name):\n    exec(f'{name}()')\n", True),
        ("class Model:\n    def eval(self, name):\n        return eval(name)\n", True),
    ],
)
@pytest.mark.parametrize("imports", ["from torch.utils.data import DataLoader\n", "from torch.utils.data import *\n"])
def test_an_import_stays_where_code_may_read_any_name(imports: str, more: str, stays: bool) -> None:
    assert placed(imports, more=more) == (imports if stays else "") + NEW


@pytest.mark.parametrize(
    ("files", "stays"),
    [
        ({"b.py": "from a import *\nx = train\n"}, False),
        ({"b.py": "from a import *\n", "c.py": "from b import *\n", "a2.py": "from c import train\n"}, False),
        ({"b.py": "from a import *\n", "c.py": "from b import *\nfrom a import *\n"}, False),
        ({"b.py": "from a import *\n", "other.py": "from torch.utils.data import DataLoader\nDataLoader.x\n"}, False),
        ({"b.py": "from a import *\nmodel.eval()\n"}, False),
        ({"b.py": "from a import *\nx = DataLoader(d)\n"}, True),
        ({"b.py": "from a import *\n__all__ = ['DataLoader']\n"}, True),
        ({"b.py": "from a import *\nx = globals()[name]\n"}, True),
        ({"b.py": "from a import *\nx = eval(name)\n"}, True),
        ({"b.py": "from a import *\n", "c.py": "import b\nx = b.DataLoader\n"}, True),
        ({"b.py": "from a import *\n", "c.py": "import b\nx = getattr(b, 'DataLoader')\n"}, True),
        ({"b.py": "from a import *\n", "c.py": "from b import DataLoader\n"}, True),
        ({"b.py": "from a import *\n", "c.py": "from b import *\nx = DataLoader(d)\n"}, True),
        ({"b.py": "from a import *\n", "c.py": "from b import *\n", "e.py": "from c import DataLoader as D\n"}, True),
    ],
)
def test_an_import_stays_where_a_file_reads_it_through_star_imports(files: dict[str, str], stays: bool) -> None:
    text = "from torch.utils.data import DataLoader\n\ndef train(d):\n    return DataLoader(d, 4)\n"
    after, _ = rewrite_text("a.py", text, Project({"a.py": text, **files}))
    assert ("import DataLoader\n" in after, "create_loader(d, 4)" in after) == (stays, True)


@pytest.mark.parametrize(
    ("path", "other", "stays"),
    [
        ("run.py", "exec(open('a.py').read())\nx = DataLoader(d)\n", True),
        ("run.py", "code = open('a.py').read()\nexec(compile(code, 'a.py', 'exec'))\nx = DataLoader(d)\n", True),
        ("run.py", "names = runpy.run_path('a.py')\nx = names['DataLoader']\n", True),
        ("run.py", "exec(open('a.py').read())\ntrain(d)\n", False),
        ("run.py", "exec(open('b.py').read())\nx = DataLoader(d)\n", False),
        ("run.py", "subprocess.run([sys.executable, 'a.py'])\nfrom torch.utils.data import DataLoader\n", False),
        ("n.ipynb", '{"cells": [{"cell_type": "code", "source": ["%run a\\n", "DataLoader(d)"]}]}', True),
        ("n.ipynb", '{"cells": [{"cell_type": "code", "source": ["%run a.py\\n", "train(d)"]}]}', False),
    ],
)
def test_an_import_stays_where_another_file_runs_this_file_in_its_own_namespace(
    path: str, other: str, stays: bool
) -> None:
    text = "from torch.utils.data import DataLoader\n\ndef train(d):\n    return DataLoader(d, 4)\n"
    books = {path: other} if path.endswith(".ipynb") else {}
    files = {"a.py": text} if books else {"a.py": text, path: other}
    after, _ = rewrite_text("a.py", text, Project(files, notebooks=books))
    assert ("import DataLoader\n" in after, "create_loader(d, 4)" in after) == (stays, True)


def test_what_another_file_takes_from_a_star_stays() -> None:
    text = "from torch.utils.data import *\n\nloader = DataLoader(d, 4)\n"
    project = Project({"a.py": text, "b.py": "from a import Subset\n"})
    after, _ = rewrite_text("a.py", text, project)
    assert after.startswith(f"from torch.utils.data import *\n{NEW}")


def test_imports_of_modules_that_were_idle_before_stay() -> None:
    idle = "import torch.nn.parallel\nimport torch.optim\n"
    imports = f"import torch\n{idle}import torch.utils.data\nimport torchvision\n"
    assert placed(imports, "torch.utils.data.DataLoader") == f"import torch\n{idle}{NEW}import torchvision\n"


@pytest.mark.parametrize(
    ("name", "content", "is_sorted"),
    [
        (".pre-commit-config.yaml", "repos:\n- hooks:\n  - id: isort\n", True),
        ("pyproject.toml", "[tool.usort]\nfirst_party_detection = false\n", True),
        ("pyproject.toml", '[project.optional-dependencies]\ndev = ["isort"]\n', True),
        ("pyproject.toml", '[tool.ruff.lint]\nselect = ["I"]\n', True),
        ("pyproject.toml", '[tool.ruff.lint]\nselect = ["E", "F"]\n', False),
        (".editorconfig", "[*.py]\nmax_line_length = 100\n", False),
        ("setup.cfg", "[flake8]\nmax-line-length = 100\n", False),
    ],
)
def test_imports_are_in_order_only_where_a_tool_of_the_project_sorts_them(
    name: str, content: str, is_sorted: bool, tmp_path: Path
) -> None:
    module = project(tmp_path, (name, content))
    module.write_text(MODULE, encoding="utf-8")
    after = migrate(tmp_path, module).splitlines()
    ours = after.index("from chirpid_patch import OptimalDataLoaderFactory")
    assert (ours < after.index("from torch import nn, optim")) is is_sorted
    assert (ours == after.index("from torch.utils.data import TensorDataset") + 1) is not is_sorted


SCRIPT = """\
import random

import numpy as np
{above}

def main(data):
    return data{use}


if __name__ == "__main__":
    from models import Net
{imports}
    from tqdm import tqdm

    main(None)
    loader = {call}(data, batch_size=4)
    other = {call}(data, batch_size=8)
"""


@pytest.mark.parametrize("above", ["", "import torch\n"])
def test_the_import_of_a_script_block_takes_the_place_of_the_one_that_goes(above: str) -> None:
    imports = "    from torch.utils.data import DataLoader"
    text = SCRIPT.format(above=above, use="", imports=imports, call="DataLoader")
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}))
    needed = "    from chirpid_patch import OptimalDataLoaderFactory"
    expected = SCRIPT.format(above=above, use="", imports=needed, call="OptimalDataLoaderFactory.create_loader")
    assert after == expected
    assert rewrite_text("a.py", after, Project({"a.py": after}))[0] == after


def test_the_import_of_a_script_block_stands_below_the_one_that_stays() -> None:
    imports = "    from torch.utils.data import DataLoader, Subset"
    text = SCRIPT.format(above="", use="[Subset]", imports=imports, call="DataLoader")
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}))
    assert "    from torch.utils.data import Subset\n    from chirpid_patch import OptimalData" in after
    assert after.startswith("import random\n\nimport numpy as np\n\n\ndef main")


def test_a_function_has_the_class_from_the_script_block_as_before() -> None:
    imports = "    from torch.utils.data import DataLoader"
    text = SCRIPT.format(above="", use=" or DataLoader(data)", imports=imports, call="DataLoader")
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}))
    assert after.count("import OptimalDataLoaderFactory") == 1
    assert "    from models import Net\n    from chirpid_patch import OptimalDataLoaderFactory\n" in after

"""Names are followed to their definitions, wherever in a tree a package lies and however its modules are imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import write_files

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.plans.plan import FindingStatus

HELPERS = """\
from torch.utils.data import DataLoader

def batches(data):
    return DataLoader(data, 8, num_workers=2)
"""
TRAINING = """\
import torch
from {helpers} import batches

def train(data, model, device):
    made = batches(data)  # a loader
    losses = []
    for epoch in range(3):
        for x in made:
            loss = model(x.to(device))
            losses.append(loss.item())
            print(loss.cpu().numpy())
            torch.cuda.empty_cache()
            first = next(iter(made))
"""


@pytest.mark.parametrize(
    ("folder", "run_on", "helpers"),
    [
        ("", "", "helpers"),
        ("scripts", "", "helpers"),
        ("pack", "", "pack.helpers"),
        ("pack", "", ".helpers"),
        ("src/pack", "", "pack.helpers"),
        ("src/pack", "", ".helpers"),
        ("src/pack", "src", "pack.helpers"),
        ("src/pack", "src/pack", "pack.helpers"),
        ("src/pack", "src/pack", ".helpers"),
        ("src/pack/train", "src/pack/train", "pack.train.helpers"),
        ("src/pack/train", "src/pack", "pack.train.helpers"),
        ("src/space", "", "space.helpers"),
        ("src/space/pack", "", "space.pack.helpers"),
    ],
)
def test_what_a_helper_makes_is_known_where_it_is_used(tmp_path: Path, folder: str, run_on: str, helpers: str) -> None:
    place = tmp_path / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "helpers.py").write_text(HELPERS)
    (place / "training.py").write_text(TRAINING.format(helpers=helpers))
    if "pack" in folder:
        for one in (place, *place.parents):
            (one / "__init__.py").write_text("")
            if one.name == "pack":
                break
    plan = plan_tree(tmp_path / run_on, jobs=1)
    found = {one.rule for one in plan.findings if one.path.endswith("training.py")}
    assert found == {"CHP013", "CHP016", "CHP024", "CHP025", "CHP027"}


@pytest.mark.parametrize("place", ["examples/training.py", "src/pack/training.py"])
def test_a_needless_init_file_in_src_hides_no_package(tmp_path: Path, place: str) -> None:
    files = {"src/__init__.py": "", "src/pack/__init__.py": "", "src/pack/helpers.py": HELPERS}
    write_files(tmp_path, {**files, place: TRAINING.format(helpers="pack.helpers")})
    found = {one.rule for one in plan_tree(tmp_path, jobs=1).findings if one.path == place}
    assert found == {"CHP013", "CHP016", "CHP024", "CHP025", "CHP027"}


@pytest.mark.parametrize(
    "package",
    [
        "from . import helpers as h\n",
        "try:\n    from .helpers import batches\nexcept ImportError:\n    from helpers import batches\n",
        "from .helpers import *\n__all__ = ['other']\n__all__ += ['batches']\n",
    ],
)
def test_what_a_package_hands_on_is_followed(tmp_path: Path, package: str) -> None:
    place = tmp_path / "src" / "pack"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(package)
    (place / "helpers.py").write_text(HELPERS)
    name = "pack.h" if "as h" in package else "pack"
    (place / "training.py").write_text(TRAINING.format(helpers=name))
    if "as h" in package:
        text = (place / "training.py").read_text()
        (place / "training.py").write_text(
            text.replace("from pack.h import batches", "from pack import h").replace("batches(", "h.batches(")
        )
    found = {one.rule for one in plan_tree(tmp_path, jobs=1).findings if one.path.endswith("training.py")}
    assert found == {"CHP013", "CHP016", "CHP024", "CHP025", "CHP027"}


def test_a_package_of_the_name_of_a_library_deep_inside_of_another_is_not_the_library(tmp_path: Path) -> None:
    for path in ("src/lib/__init__.py", "src/lib/validators/torch/__init__.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "helpers.py").write_text(HELPERS)
    assert [file.path for file in plan_tree(tmp_path).files if file.note == "rewrite"] == ["helpers.py"]


@pytest.mark.parametrize(
    "module",
    [
        "tests/torch/__init__.py",
        "examples/torch/__init__.py",
        "pack/torch.py",
        "pack/torch/utils/data.py",
        "pack/torch/a.py",
    ],
)
@pytest.mark.parametrize("user", ["training.py", "pack/training.py", "pack/sub/training.py"])
def test_a_module_of_the_name_of_a_library_elsewhere_is_not_the_library(tmp_path: Path, module: str, user: str) -> None:
    for path in ("pack/__init__.py", "pack/sub/__init__.py", module):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("class DataLoader: ...\n")
    (tmp_path / user).write_text(HELPERS)
    assert [file.path for file in plan_tree(tmp_path, jobs=1).files] == [user]


@pytest.mark.parametrize(("run_on", "source"), [("", "torch.utils.data"), ("pack", ".torch.utils.data")])
def test_what_a_project_defines_is_its_own_where_a_library_calls_it_the_same(
    tmp_path: Path, run_on: str, source: str
) -> None:
    place = tmp_path / run_on
    for path in ("torch/__init__.py", "torch/utils/__init__.py", "torch/utils/data.py"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text("class DataLoader:\n    def __init__(self, *args, **options): ...\n")
    if run_on:
        (place / "__init__.py").touch()
    (place / "helpers.py").write_text(HELPERS.replace("torch.utils.data", source))
    plan = plan_tree(place, jobs=1)
    assert not plan.files and not plan.findings


@pytest.mark.parametrize("own", ["one", "two"])
def test_a_project_in_a_tree_of_several_imports_its_own_sources(tmp_path: Path, own: str) -> None:
    for project in ("one", "two"):
        place = tmp_path / project / "src" / "pack"
        place.mkdir(parents=True)
        (place / "__init__.py").touch()
        (place / "helpers.py").write_text(HELPERS if project == own else "def batches(data):\n    return [data]\n")
        (tmp_path / project / "training.py").write_text(TRAINING.format(helpers="pack.helpers"))
    found = {one.path for one in plan_tree(tmp_path, jobs=1).findings if one.rule == "CHP016"}
    assert found == {f"{own}/training.py"}


@pytest.mark.parametrize(
    "change",
    [
        "sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))",
        "sys.path.append(str(Path(__file__).parent.parent / 'lib'))",
        "sys.path += ['../lib']",
    ],
)
def test_a_script_says_in_which_folder_its_modules_are(tmp_path: Path, change: str) -> None:
    texts = {
        "lib/helpers.py": HELPERS,
        "other/helpers.py": "def batches(data):\n    return [data]\n",
        "tools/training.py": f"import os\nimport sys\nfrom pathlib import Path\n{change}\n" + TRAINING,
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text.format(helpers="helpers"))
    found = {one.rule for one in plan_tree(tmp_path, jobs=1).findings if one.path == "tools/training.py"}
    assert found == {"CHP013", "CHP016", "CHP024", "CHP025", "CHP027"}


def test_of_two_packages_of_a_name_none_is_surely_meant_where_a_script_names_the_folder_of_one(tmp_path: Path) -> None:
    texts = {
        "pack/__init__.py": "from torch.utils.data import DataLoader\n",
        "other/pack/__init__.py": "class DataLoader: ...\n",
        "tools/training.py": "import sys\nsys.path.insert(0, '../other')\n"
        + HELPERS.replace("torch.utils.data", "pack"),
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    (finding,) = plan_tree(tmp_path, jobs=1).findings
    assert (finding.path, finding.rule, finding.status) == ("tools/training.py", "CHP001", FindingStatus.REPORT)


CAPTURES = """\
from torch.utils.data import DataLoader

def build(data, k):
    {definition}
    return DataLoader(data, num_workers=2, collate_fn={collate})
"""
SCALES = "lambda b: [x * k for x in b]"


@pytest.mark.parametrize(
    ("definition", "collate", "module", "written"),
    [
        ("pass", SCALES, "other", "collate_fn=partial(_collate_fn, k)"),
        ("pass", SCALES, "_collate_fn", "collate_fn=partial(_scale_each, k)"),
        ("pass", SCALES, "partial", f"collate_fn={SCALES}"),
        ("def collate(b): return b[0]", "collate", "other", "def collate(b): return b[0]\n\n\ndef build"),
        ("def collate(b): return b[0]", "collate", "collate", "def _collate(b): return b[0]\n\n\ndef build"),
    ],
)
def test_a_module_of_a_package_takes_the_place_of_its_name(
    tmp_path: Path, definition: str, collate: str, module: str, written: str
) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text(CAPTURES.format(definition=definition, collate=collate))
    (tmp_path / f"pack/{module}.py").write_text("A = 1\n")
    (planned,) = plan_tree(tmp_path, jobs=1).files
    assert written in planned.after.decode()

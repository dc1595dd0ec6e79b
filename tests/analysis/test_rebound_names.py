"""A name is what Python would find there: rebound anywhere in the module, or another file of the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from chirp_migrate.engine.plan_tree import plan_tree

USE = "\ndef batches(data):\n    return DataLoader(data, batch_size=4, num_workers=2)\n"
OWN = "class DataLoader:\n    def __init__(self, *rows, **options):\n        self.rows = rows\n"
TORCH = "from torch.utils.data import DataLoader\n"


def rewritten(root: Path, files: dict[str, str]) -> set[str]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return {one.path for one in plan_tree(root, jobs=1).files}


@pytest.mark.parametrize(
    "rebinding",
    [
        "for DataLoader in (Mine, list):\n    pass\n",
        "with open('x') as DataLoader:\n    pass\n",
        "if (DataLoader := Mine):\n    pass\n",
        "try:\n    pass\nexcept ValueError as DataLoader:\n    pass\n",
        "match Mine:\n    case DataLoader:\n        pass\n",
        "match Mine:\n    case [*DataLoader]:\n        pass\n",
        "match Mine:\n    case {'a': 1, **DataLoader}:\n        pass\n",
        "def use():\n    global DataLoader\n    DataLoader = Mine\n",
        "def use():\n    global DataLoader\n    from mine import Mine as DataLoader\n",
    ],
)
def test_a_class_that_is_bound_anew_is_not_taken_for_pytorchs(tmp_path: Path, rebinding: str) -> None:
    assert rewritten(tmp_path, {"main.py": f"{TORCH}from mine import Mine\n{rebinding}{USE}"}) == set()
    assert rewritten(tmp_path, {"main.py": f"{TORCH}from mine import Mine\n{USE}"}) == {"main.py"}


@pytest.mark.parametrize(
    "rebinding",
    [
        "def use():\n    global DataLoader\n    DataLoader = list\n",
        "def use(): global DataLoader; DataLoader = list\n",
        "def use():\n    pass;\\\n\tglobal \\\n DataLoader; DataLoader = list\n",
    ],
)
def test_a_class_that_another_file_binds_anew_is_not_taken_for_pytorchs(tmp_path: Path, rebinding: str) -> None:
    main = f"from shared import DataLoader\n{USE}"
    assert rewritten(tmp_path, {"shared.py": TORCH + rebinding, "main.py": main}) == set()
    assert rewritten(tmp_path, {"shared.py": TORCH, "main.py": main}) == {"main.py"}


@pytest.mark.parametrize(
    "shadowing",
    [
        "with open(path) as read_labels:\n        read_labels.read()",
        "if (read_labels := path):\n        print(read_labels)",
        "try:\n        path.open()\n    except OSError as read_labels:\n        print(read_labels)",
        "from mine import read_labels",
        "def read_labels(one):\n        return one",
        "read_labels += path",
        "match path:\n        case [*read_labels]:\n            print(read_labels)",
    ],
)
def test_the_runtimes_function_is_not_called_where_a_local_name_hides_it(tmp_path: Path, shadowing: str) -> None:
    head = "from torch.utils.data import Dataset\n\ndef labels(dataset: Dataset, path):\n"
    text = head + "    {}\n    return [y for _, y in dataset]\n"
    assert rewritten(tmp_path, {"main.py": text.format(shadowing)}) == set()
    assert rewritten(tmp_path, {"main.py": text.format("path = None")}) == {"main.py"}


def test_scripts_import_from_their_own_folder(tmp_path: Path) -> None:
    main = f"from helpers import DataLoader\n{USE}"
    files = {"a/helpers.py": TORCH, "a/main.py": main, "b/helpers.py": OWN, "b/main.py": main}
    assert rewritten(tmp_path, files) == {"a/main.py"}


def test_packages_of_one_name_are_those_of_the_folders_around(tmp_path: Path) -> None:
    main = f"from pack.helpers import DataLoader\n{USE}"
    files = {f"{folder}/pack/__init__.py": "" for folder in ("one", "two")}
    files |= {
        "one/pack/helpers.py": TORCH,
        "one/pack/main.py": main,
        "two/pack/helpers.py": OWN,
        "two/pack/main.py": main,
    }
    assert rewritten(tmp_path, files | {"tests/main.py": main}) == {"one/pack/main.py"}


def test_a_module_in_the_script_folder_and_one_at_the_root_are_told_apart_by_nobody(tmp_path: Path) -> None:
    main = f"from helpers import DataLoader\n{USE}"
    assert rewritten(tmp_path, {"helpers.py": TORCH, "b/helpers.py": OWN, "b/main.py": main}) == set()


def test_a_library_is_not_a_module_of_its_name_in_some_other_folder(tmp_path: Path) -> None:
    files = {"tools/datasets.py": TORCH, "main.py": f"from datasets import DataLoader\n{USE}"}
    assert rewritten(tmp_path, files) == set()


@pytest.mark.parametrize("star", ["before", "behind"])
def test_what_a_later_import_of_everything_may_bind_anew_is_not_certain(tmp_path: Path, star: str) -> None:
    everything = "from later import *\n"
    helpers = everything + TORCH if star == "before" else TORCH + everything
    files = {"later.py": OWN, "helpers.py": helpers, "main.py": f"from helpers import DataLoader\n{USE}"}
    assert rewritten(tmp_path, files) == ({"main.py"} if star == "before" else set())


def test_a_pattern_that_takes_a_name_makes_it_local(tmp_path: Path) -> None:
    text = (
        "import torchvision.transforms as T\nfrom torch.utils.data import Dataset\n\nWIDTH = 8\n\n"
        "class Images(Dataset):\n    def __init__(self, sizes, images):\n        self.sizes = sizes\n"
        "        self.images = images\n\n    def __len__(self):\n        return len(self.images)\n\n"
        "    def __getitem__(self, i):\n        x = self.images[i]\n        match self.sizes[i]:\n"
        "            case WIDTH:\n                x = T.Resize((WIDTH, WIDTH))(x)\n        return x\n"
    )
    assert rewritten(tmp_path, {"main.py": text}) == set()

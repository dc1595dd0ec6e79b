"""The engine as a whole: what it touches, what it leaves, and that a second look finds nothing."""

from __future__ import annotations

import ast
import codecs
from pathlib import Path

import pytest

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.settings import Settings
from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.plan import Edit, FindingStatus, Plan
from chirp_migrate.rules import RuleMatch, all_rules
from chirp_migrate.syntax.module import Module

FIXTURE = Path(__file__).parents[2] / "fixtures" / "backend"

LOADER = "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, batch_size=4, num_workers=0)\n"


def plan_of(root: Path, files: dict[str, str | bytes], *, unsafe: bool = False) -> Plan:
    """Plan of a tree with the given files."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return plan_tree(root, settings=Settings(unsafe=unsafe))


def after(plan: Plan, path: str) -> str:
    """New text of a file."""
    return next(file.after for file in plan.files if file.path == path).decode()


@pytest.fixture(scope="module")
def fixture_plans(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Plan, Path]]:
    """The fixture backend migrated by default, and with opt-in rules and all loaders; and where the result lies."""
    plans = {}
    for unsafe in (False, True):
        plan = plan_tree(FIXTURE, settings=Settings(unsafe=unsafe, all_loaders=unsafe))
        target = tmp_path_factory.mktemp("migrated")
        for path in FIXTURE.rglob("*.py"):
            copy = target / path.relative_to(FIXTURE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        for file in plan.files:
            (target / file.path).parent.mkdir(parents=True, exist_ok=True)
            (target / file.path).write_bytes(file.after)
        plans[unsafe] = plan, target
    return plans


@pytest.mark.slow
@pytest.mark.parametrize("unsafe", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_second_look_finds_nothing_to_do(fixture_plans: dict[bool, tuple[Plan, Path]], unsafe: bool) -> None:
    plan, target = fixture_plans[unsafe]
    assert len(plan.files) >= 7
    again = plan_tree(target, settings=Settings(unsafe=unsafe, all_loaders=unsafe))
    assert again.files == ()
    assert not [f for f in again.findings if f.status is FindingStatus.REWRITE]


@pytest.mark.slow
@pytest.mark.slow
def test_by_default_every_loader_of_the_fixture_gains_something(
    fixture_plans: dict[bool, tuple[Plan, Path]],
) -> None:
    plan, _ = fixture_plans[False]
    sites = [one for one in plan.findings if one.rule == "CHP001"]
    assert len(sites) == 37 and {one.status for one in sites} == {FindingStatus.REWRITE}


@pytest.mark.slow
def test_no_loader_dataset_or_wrapper_of_the_fixture_holds_a_lambda(
    fixture_plans: dict[bool, tuple[Plan, Path]],
) -> None:
    _, target = fixture_plans[True]
    for path in target.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and _is_held(tree, node)], path
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        local = [c.name for f in functions for c in ast.walk(f) if isinstance(c, ast.ClassDef)]
        assert not local, (path, local)
        calls = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert "DataLoader" not in calls, path


def _is_held(tree: ast.Module, node: ast.Lambda) -> bool:
    """Whether a lambda is anything but a sort key."""
    keys = [k.value for c in ast.walk(tree) if isinstance(c, ast.Call) for k in c.keywords if k.arg == "key"]
    return node not in keys


@pytest.mark.slow
def test_lines_without_a_finding_survive(fixture_plans: dict[bool, tuple[Plan, Path]]) -> None:
    """Everything outside what was rewritten is there, byte for byte: trailing blanks, spacing, the missing newline."""
    plan, _ = fixture_plans[False]
    backup = next(file for file in plan.files if file.path == "utils/util_backup.py")
    assert backup.before is not None
    new = backup.after.split(b"\n")
    for line in (
        b"    results = {}   ",
        b"    running_loss=0.0; correct=0; total=0",
        b"# Do not clean up while the old",
    ):
        assert any(kept.startswith(line) for kept in new)
    assert not backup.after.endswith(b"\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from torch.utils.data import DataLoader as DL\nx = DL(d)\n", True),
        ("import torch.utils.data as tud\nx = tud.DataLoader(d)\n", True),
        ("from torch.utils import data\nx = data.DataLoader(d)\n", True),
        ("import torch\nx = torch.utils.data.DataLoader(d)\n", True),
        ("from torch.utils.data.dataloader import DataLoader\nx = DataLoader(d)\n", True),
        ("def f(d):\n    from torch.utils.data import DataLoader\n    return DataLoader(d)\n", True),
        ("from .common import DataLoader\nx = DataLoader(d)\n", True),
        ("from pkg.common import Loader\nx = Loader(d)\n", True),
        ("from mylib import DataLoader\nx = DataLoader(d)\n", False),
        ("class DataLoader:\n    pass\nx = DataLoader(d)\n", False),
        (
            "try:\n    from fast import DataLoader\nexcept ImportError:\n"
            "    from torch.utils.data import DataLoader\nx = DataLoader(d)\n",
            False,
        ),
    ],
)
def test_names_are_resolved_not_spelled(tmp_path: Path, text: str, expected: bool) -> None:
    common = "from torch.utils.data import DataLoader\nfrom torch.utils.data import DataLoader as Loader\n"
    plan = plan_of(tmp_path, {"pkg/common.py": common, "pkg/use.py": text})
    assert ("pkg/use.py" in {file.path for file in plan.files}) is expected


@pytest.mark.parametrize("use", ["from pkg._C import load", "from . import _C", "import pkg._C as _C"])
def test_a_package_that_takes_everything_from_a_compiled_module_is_read(tmp_path: Path, use: str) -> None:
    loader = "loader = DataLoader(dataset, collate_fn=_C.collate)\n"
    text = f"{use}\nfrom torch.utils.data import DataLoader\n\n{loader}"
    plan = plan_of(tmp_path, {"pkg/__init__.py": "from ._C import *\n", "pkg/a.py": text})
    assert not plan.skipped and "create_loader" in after(plan, "pkg/a.py")


def test_an_alias_of_an_alias_is_the_same_class(tmp_path: Path) -> None:
    files = {
        "a.py": "from tools import L2\nx = L2(d)\n",
        "tools/__init__.py": "from .loading import Loader as L2\n",
        "tools/loading.py": "from torch.utils.data import DataLoader as Loader\n",
        "tools/again.py": "from . import L2 as Loader\n",
    }
    assert "create_loader(d)" in after(plan_of(tmp_path, files), "a.py")


def test_what_libcst_alone_refuses_is_no_internal_error(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"a.py": f"{LOADER}def f(x, y, z):\n    return(x if y else z),y\n"})
    assert [skipped.reason for skipped in plan.skipped] == ["syntax that LibCST does not support"]


def test_an_import_another_module_takes_from_here_stays(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"a.py": LOADER, "b.py": "from a import DataLoader\n"})
    assert "import DataLoader" in after(plan, "a.py")
    plan = plan_of(tmp_path / "alone", {"a.py": LOADER})
    assert "import DataLoader" not in after(plan, "a.py")


@pytest.mark.parametrize(
    ("path", "use"),
    [
        ("p/b.py", "from .a import make, \\\n    DataLoader\n"),
        ("p/b.py", "from . a \\\n    import DataLoader\n"),
        ("p/b.py", "from p.a import (make,  # (all of them)\n    DataLoader)\n"),
        ("p/b.py", "from . import a as loading\nprint(loading.DataLoader)\n"),
        ("b.py", "import p.a as loading\nprint(loading.DataLoader)\n"),
        ("b.py", "import p.a\nloading = p.a\nprint(loading.DataLoader)\n"),
        ("b.py", "from p import a\nprint((a).DataLoader, (a  # it\n    .DataLoader))\n"),
        ("b.py", "from p import a\nprint(getattr(a, 'DataLoader'))\n"),
        ("b.py", "from importlib import import_module\nprint(import_module('p.a').DataLoader)\n"),
    ],
)
def test_an_import_stays_however_another_module_takes_it(tmp_path: Path, path: str, use: str) -> None:
    plan = plan_of(tmp_path, {"p/__init__.py": "", "p/a.py": LOADER, path: use})
    assert "import DataLoader" in after(plan, "p/a.py")


@pytest.mark.parametrize("path", ["p/b.py", "p/q/b.py"])
def test_an_import_that_a_module_takes_from_the_package_around_it_stays(tmp_path: Path, path: str) -> None:
    use = f"from {'.' * path.count('/')} import DataLoader\n"
    plan = plan_of(tmp_path, {"p/__init__.py": LOADER, "p/q/__init__.py": "", path: use})
    assert "import DataLoader" in after(plan, "p/__init__.py")
    plan = plan_of(
        tmp_path / "other", {"p/__init__.py": LOADER, "p/q/__init__.py": "", "p/q/b.py": "from . import DataLoader\n"}
    )
    assert "import DataLoader" not in after(plan, "p/__init__.py")


SCAN = "from torch.utils.data import Dataset\n{}\ndef scan(dataset):\n    return [y for _, y in dataset]\n"


@pytest.mark.parametrize(
    "others",
    [
        {"helpers.py": "def read_labels(path):\n    return path\n"},
        {"helpers.py": "from inner import *\n", "inner.py": "read_labels = print\n"},
        {"helpers.py": "from inner import labels as read_labels\n", "inner.py": "labels = print\n"},
        {"helpers.py": "__all__ = ['read_labels']\nread_labels = print\n"},
        {"helpers/__init__.py": "from .read_labels import other\n", "helpers/read_labels.py": "other = print\n"},
        {"helpers.py": "def read_labels(:\n"},
        {"helpers.py": "for name in ('read_labels', 'other'):\n    globals()[name] = print\n"},
        {"helpers.py": "__all__ = ['read_labels']\ndef __getattr__(name):\n    return print\n"},
    ],
    ids=["own", "through another star", "renamed", "listed", "submodule", "unreadable", "computed", "asked for"],
)
def test_a_name_that_a_star_import_brings_is_not_taken_over(tmp_path: Path, others: dict[str, str | bytes]) -> None:
    plan = plan_of(tmp_path, {"a.py": SCAN.format("from helpers import *"), **others})
    assert [file.path for file in plan.files] == []
    (found,) = plan.findings
    taken = "not rewritten: `read_labels` already means something else in this file; without this name clash: "
    assert found.message.startswith(taken) and found.status is FindingStatus.REPORT


@pytest.mark.parametrize(
    "others",
    [
        {"helpers.py": "from chirpid_patch import read_labels\n"},
        {"helpers.py": "__all__ = ['other']\nread_labels = other = print\n"},
        {"helpers.py": "from numpy import *\n"},
        {"elsewhere.py": "read_labels = print\n"},
    ],
    ids=["the same", "not listed", "of a library", "no module of the project"],
)
def test_a_star_import_that_does_not_bring_a_name_is_in_no_way(tmp_path: Path, others: dict[str, str | bytes]) -> None:
    plan = plan_of(tmp_path, {"a.py": SCAN.format("from helpers import *"), **others})
    assert "return read_labels(dataset" in after(plan, "a.py")


@pytest.mark.parametrize(
    ("own", "listed", "use", "moves"),
    [
        ("def read_labels(path):\n    return path\n", "", "from own import *\nfrom a import *\n", False),
        ("from inner import labels as read_labels\n", "", "from own import *\nfrom a import *\n", False),
        (
            "def read_labels(path):\n    return path\n",
            "__all__ = ['scan']\n",
            "from own import *\nfrom a import *\n",
            True,
        ),
        ("def read_labels(path):\n    return path\n", "", "from own import *\nfrom a import scan\n", True),
        ("from chirpid_patch import read_labels\n", "", "from own import *\nfrom a import *\n", True),
    ],
    ids=["defined", "imported", "not listed", "by name", "the same"],
)
def test_an_import_brings_nothing_to_those_who_take_everything(
    tmp_path: Path, own: str, listed: str, use: str, moves: bool
) -> None:
    plan = plan_of(tmp_path, {"a.py": SCAN.format(listed), "own.py": own, "main.py": use})
    assert bool(plan.files) == moves
    told = "`read_labels` already means something else in another file, which imports `*` from this file"
    assert (told in plan.findings[0].message) != moves


def test_what_was_unused_before_stays(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"a.py": "import os\nimport json\n" + LOADER})
    assert after(plan, "a.py").startswith("import os\nimport json\n")


@pytest.mark.parametrize(
    ("bom", "encoding", "newline"),
    [
        (b"", "utf-8", "\n"),
        (codecs.BOM_UTF8, "utf-8", "\r\n"),
        (b"", "latin-1", "\r\n"),
        (b"", "utf-8", "\r"),
    ],
)
def test_encoding_mark_and_newlines_survive(tmp_path: Path, bom: bytes, encoding: str, newline: str) -> None:
    cookie = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    text = f"{cookie}# Vögel\n\f\n{LOADER}last = 'é'".replace("\n", newline)
    plan = plan_of(tmp_path, {"a.py": bom + text.encode(encoding)})
    new = next(file.after for file in plan.files)
    assert new.startswith(bom) and new.count(codecs.BOM_UTF8) == bool(bom)
    body = new[len(bom) :].decode(encoding)
    assert "# Vögel" in body and body.endswith("last = 'é'") and "\f" in body
    assert set(body.replace(newline, "")).isdisjoint("\r\n")


def test_a_broken_file_is_reported_and_the_others_are_migrated(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "bad.py": "from torch.utils.data import DataLoader\ndef f(:\n",
        "nul.py": LOADER.encode() + b"\0\n",
        "undecodable.py": LOADER.encode() + b"# \xff\n",
        "good.py": LOADER,
    }
    plan = plan_of(tmp_path, files)
    assert [file.path for file in plan.files] == ["good.py"]
    assert {one.path for one in plan.skipped} == {"bad.py", "nul.py", "undecodable.py"}
    assert "line 2" in next(one.reason for one in plan.skipped if one.path == "bad.py")


def test_a_file_that_no_rule_knows_a_word_of_is_not_our_business(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"bad.py": "x = (\n", "nul.py": b"x = 1\0\n", "odd.py": b"# \xff\n", "a.py": LOADER}
    plan = plan_of(tmp_path, files)
    assert [file.path for file in plan.files] == ["a.py"] and plan.skipped == ()


def test_a_character_that_the_files_encoding_lacks_costs_that_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = next(rule for rule in all_rules() if rule.code == "CHP001").__class__
    edit = Edit(0, 0, "# \N{GREEK SMALL LETTER MU}\n")

    def check(self: object, module: Module, project: object) -> list[RuleMatch]:
        return [] if "\N{GREEK SMALL LETTER MU}" in module.text else [RuleMatch(0, "said", (edit,))]

    monkeypatch.setattr(rule, "check", check)
    plan = plan_of(tmp_path, {"a.py": "# coding: latin-1\n" + LOADER, "b.py": LOADER})
    assert [file.path for file in plan.files] == ["b.py"]
    assert [one.path for one in plan.skipped] == ["a.py"] and "iso-8859-1" in plan.skipped[0].reason
    assert {finding.path for finding in plan.findings} == {"b.py"}


def test_findings_of_later_passes_have_lines_of_the_file_as_it_was(tmp_path: Path) -> None:
    text = LOADER + "\f\n# \x1c \u2028\nother = DataLoader(data, collate_fn=lambda b: b)\n"
    plan = plan_of(tmp_path, {"a.py": text})
    assert {(f.rule, f.line) for f in plan.findings} == {("CHP001", 3), ("CHP001", 6), ("CHP007", 6)}


def test_what_is_wrong_with_the_users_code_is_not_our_output(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    plan = plan_of(tmp_path, {"a.py": LOADER + "pattern = '\\d'\n"})
    assert plan.files and not recwarn.list


def test_what_is_not_the_backends_source_is_left_out(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.py": LOADER,
        "env/pyvenv.cfg": "",
        "env/lib/x.py": LOADER,
        "node_modules/x.py": LOADER,
        "chirpid_patch/x.py": LOADER,
        ".chirp-migrate/x.py": LOADER,
        "__pycache__/x.py": LOADER,
    }
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "far.py").write_text(LOADER)
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "outside", target_is_directory=True)
    (root / "far.py").symlink_to(tmp_path / "outside" / "far.py")
    assert [file.path for file in plan_of(root, files).files] == ["a.py"]


@pytest.mark.parametrize("make", ["missing", "empty", "text"])
def test_a_path_that_is_no_backend_is_one_sentence(tmp_path: Path, make: str) -> None:
    path = tmp_path / make
    if make == "empty":
        path.mkdir()
    if make == "text":
        path.write_text("hello")
    with pytest.raises(UsageProblem, match=make):
        plan_tree(path)


def test_a_defect_in_a_rule_costs_one_file_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, module: Module, project: object) -> list[RuleMatch]:
        if module.path == "a.py":
            raise RuntimeError("boom\n" + "and a whole syntax tree\n" * 1000)
        return []

    monkeypatch.setattr(next(r for r in all_rules() if r.code == "CHP007").__class__, "check", broken)
    text = LOADER + "other = DataLoader(data, collate_fn=lambda samples: samples)\n"
    plan = plan_of(tmp_path, {"a.py": text, "b.py": text})
    assert [file.path for file in plan.files] == ["b.py"]
    assert [(one.path, "boom" in one.reason) for one in plan.skipped] == [("a.py", True)]
    assert len(plan.skipped[0].reason) < 300

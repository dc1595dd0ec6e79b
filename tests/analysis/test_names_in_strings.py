"""Names that code asks for by a string keep their import, and what a test replaces is not rewritten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import run

from chirp_migrate.analysis.dataflow.names_in_strings import is_named_in_strings
from chirp_migrate.engine.discover import discover_files
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project

IMPORT = "from torch.utils.data import DataLoader\n"
BUILD = "def build(dataset):\n    return DataLoader(dataset, batch_size=2)\n"
PATH = "pkg/loaders.py"


def migrated(
    text: str = IMPORT + BUILD, others: dict[str, str] | None = None, settings: dict[str, str] | None = None
) -> str:
    texts = {PATH: text, **(others or {})}
    after, _ = rewrite_text(PATH, text, Project(texts, settings=settings))
    return after


def test_an_import_that_nothing_else_needs_goes() -> None:
    after = migrated(f'{IMPORT}"""Makes a DataLoader for you."""\nKEY = "dataloader"\n{BUILD}')
    assert IMPORT not in after and "create_loader(" in after


@pytest.mark.parametrize(
    "code",
    [
        'import typing\nLoaders = typing.List["DataLoader"]\n',
        'Loaders = "typing.List[DataLoader]"\n',
        "Loaders = \"List['DataLoader']\"\n",
        'def f(x):\n    return typing.cast("DataLoader", x)\n',
        "def f(x: 'DataLoader'): ...\n",
        'def f(x):\n    """Do it.\n\n    >>> DataLoader([1])\n    """\n',
        "print(eval('DataLoader([1])'))\n",
        "__all__ = ['DataLoader']\n",
    ],
)
def test_code_in_a_string_keeps_the_import(code: str) -> None:
    after = migrated(IMPORT + code + BUILD)
    assert IMPORT in after and "create_loader(" in after


@pytest.mark.parametrize(
    "other",
    [
        "import pkg.loaders as own\nkind = getattr(own, 'DataLoader')\n",
        "for name in ('DataLoader', 'build'):\n    print(getattr(own, name))\n",
        "print(f'{own}.DataLoader')\n",
    ],
)
def test_a_string_of_another_file_keeps_the_import(other: str) -> None:
    after = migrated(others={"other.py": other})
    assert IMPORT in after and "create_loader(" in after


QUOTED = [
    "class DataLoader:\n    def load() -> 'DataLoader':\n        pass\n",
    "from own import Loader as DataLoader\r\nclass Own:\r\n"
    "    async def load(self, é: 'DataLoader', *given: \"DataLoader\") -> Optional['DataLoader']:\r\n"
    "        x: 'DataLoader' = more\r\n",
    "if TYPE_CHECKING:\n    from own import DataLoader\n"
    "def load(\n    more: Dict[\n        str, 'DataLoader'\n    ],\n) -> 'DataLoader' | None:\n    pass\n",
]


@pytest.mark.parametrize("other", QUOTED)
def test_a_quoted_type_of_another_file_does_not_keep_the_import(other: str) -> None:
    assert IMPORT not in migrated(others={"other.py": other})


@pytest.mark.parametrize("other", QUOTED)
@pytest.mark.parametrize(
    "more",
    [
        "for name in ('DataLoader',):\n    print(name)\n",
        "x: 'DataLoader' = 'DataLoader'\n",
        "def f(kind: Literal['DataLoader', 'Other']): ...\n",
        "def f(kind: Annotated[str, 'DataLoader']): ...\n",
        "x: KINDS['DataLoader'] = None\n",
        "x: vars(loaders)['DataLoader'] = None\n",
        "x: 'loaders.DataLoader' = None\n",
        "print(typing.get_type_hints(f, vars(loaders)))\n",
    ],
)
def test_a_string_beside_quoted_types_keeps_the_import(other: str, more: str) -> None:
    assert IMPORT in migrated(others={"other.py": other + more})


def test_a_quoted_type_that_its_file_does_not_bind_keeps_the_import() -> None:
    assert IMPORT in migrated(others={"other.py": "def use(loader: 'DataLoader'):\n    pass\n"})


@pytest.mark.parametrize(
    ("name", "text", "stays"),
    [
        ("a.yaml", "loader:\n  _target_: pkg.loaders.DataLoader\n", True),
        ("a.yaml", "module: pkg.loaders\nclass: DataLoader\n", True),
        ("a.json", '{"class": "DataLoader"}', True),
        ("a.toml", "class = 'DataLoader'  # of the loaders\n", True),
        ("a.ini", "[training]\nloader = DataLoader\n", True),
        ("a.gin", "training.loader = @loaders.DataLoader\n", True),
        ("a.yaml", "loader:\n  _target_: torch.utils.data.DataLoader\n", False),
        ("a.yaml", "# settings of the DataLoader above\nworkers: 3\n", False),
    ],
)
def test_a_file_of_settings_keeps_the_import(name: str, text: str, stays: bool) -> None:
    assert (IMPORT in migrated(settings={name: text})) == stays


@pytest.mark.parametrize("key", ["print(config['os'])\n", "print(getattr(config, 'os', None))\n"])
def test_a_key_is_no_module_of_its_name(key: str) -> None:
    text = f"import os\n{IMPORT}{key}\ndef f(dataset):\n    return DataLoader(dataset, num_workers=os.cpu_count())\n"
    assert ("import os" in migrated(text)) == ("num_workers=os" in migrated(text))


@pytest.mark.parametrize(
    "patching",
    [
        "mock.patch('pkg.loaders.DataLoader')",
        "mock.patch.object(own, 'DataLoader')",
        "mock.patch.object(own, 'Data' + 'Loader')",
        "mocker.patch.object(own, attribute='DataLoader', new=1)",
        "mock.patch.multiple(own, DataLoader=1)",
        "mock.patch.multiple('pkg.loaders', DataLoader=1)",
        "mock.patch.multiple(target='pkg.loaders', DataLoader=1)",
        "mock.patch.multiple(own, **FAKES)",
        "mock.patch.dict(own.__dict__, {'DataLoader': 1})",
        "mock.patch.dict('pkg.loaders.__dict__', DataLoader=1)",
        "mock.patch.dict(vars(own), DataLoader=1)",
        "renamed('pkg.loaders.DataLoader')",
        "mock.patch(f'{own.__name__}.DataLoader')",
        "mock.patch(own.__name__ + '.DataLoader')",
        "mock.patch('{}.DataLoader'.format(own.__name__))",
        "mock.patch('%s.DataLoader' % own.__name__)",
        "mock.patch.object(sys.modules['pkg.loaders'], 'DataLoader')",
        "monkeypatch.setattr(own, 'DataLoader', 1)",
        "monkeypatch.setattr('pkg.loaders.DataLoader', 1)",
        "monkeypatch.setitem(own.__dict__, 'DataLoader', 1)",
        "monkeypatch.delattr(own, 'DataLoader')",
        "setattr(own, 'DataLoader', 1)",
        "own.__dict__.update(DataLoader=1)",
    ],
)
def test_what_is_patched_is_not_rewritten(patching: str) -> None:
    header = "import pkg.loaders as own\nfrom unittest.mock import patch as renamed\nFAKES = {'DataLoader': 1}\n"
    assert migrated(others={"test_loaders.py": f"{header}{patching}\n"}) == IMPORT + BUILD


@pytest.mark.parametrize(
    "patching",
    [
        "for module in (own, sys):\n    monkeypatch.setattr(module, 'DataLoader', 1)\n",
        "found = sys.modules['pkg.loaders']\npatch.object(found, 'DataLoader', 1)\n",
        "found = own\npatch.multiple(found, DataLoader=1)\n",
        "def replaced(module):\n    return patch.dict(vars(module), {'DataLoader': 1})\n",
        "def replaced(module):\n    setattr(module, 'DataLoader', 1)\n",
        "def replaced(module):\n    return patch.multiple(module, **FAKES)\n",
        "for module in own.__dict__['all']:\n    for name in FAKES:\n        monkeypatch.setattr(module, name, 1)\n",
        "patch.object(loaded(), 'DataLoader', 1)\n",
        "patch.object(self.module, 'DataLoader', 1)\n",
    ],
)
def test_what_a_variable_stands_for_may_be_any_module(patching: str) -> None:
    header = "import sys\nimport pkg.loaders as own\nfrom unittest.mock import patch\nFAKES = {'DataLoader': 1}\n"
    assert migrated(others={"test_loaders.py": f"{header}{patching}"}) == IMPORT + BUILD


@pytest.mark.parametrize(
    "other",
    [
        "class Trainer: ...\npatch.object(Trainer, 'DataLoader', 1)\n",
        "def set_all(config):\n    for key, one in {'DataLoader': 3}.items():\n        setattr(config, key, one)\n",
        "class Trainer:\n    def f(self):\n        setattr(self, 'DataLoader', 1)\n",
    ],
)
def test_what_is_no_module_has_names_of_its_own(other: str) -> None:
    assert "create_loader(" in migrated(others={"other.py": f"from unittest.mock import patch\n{other}"})


def test_a_patch_in_the_file_itself_counts() -> None:
    for patching in ("mock.patch(__name__ + '.DataLoader')", "mock.patch.multiple(__name__, DataLoader=1)"):
        text = f"{IMPORT}{BUILD}\nwith {patching}:\n    build([])\n"
        assert migrated(text) == text


@pytest.mark.parametrize(
    "other",
    [
        "import other\nmock.patch.multiple(other, DataLoader=1)\n",
        "mock.patch('pkg.other.DataLoader')\n",
        "setattr(self, 'DataLoader', 1)\n",
        "patches = image.patch(3)\n",
    ],
)
def test_what_is_patched_elsewhere_is_rewritten_here(other: str) -> None:
    assert "create_loader(" in migrated(others={"test_other.py": other})


@pytest.mark.parametrize(
    "hiding",
    [
        "def f(dataset, OptimalDataLoaderFactory=None):\n    return DataLoader(dataset)\n",
        "def f(OptimalDataLoaderFactory):\n    def g(dataset):\n        return DataLoader(dataset)\n    return g\n",
        "f = lambda dataset, OptimalDataLoaderFactory: DataLoader(dataset)\n",
        "f = [DataLoader(dataset) for dataset, OptimalDataLoaderFactory in pairs]\n",
        "def f(dataset):\n    for OptimalDataLoaderFactory in dataset:\n        DataLoader(dataset)\n",
        "class F:\n    OptimalDataLoaderFactory = 1\n    loader = DataLoader([1])\n",
    ],
)
def test_a_local_name_hides_the_factory(hiding: str) -> None:
    after, (finding,) = rewrite_text("a.py", IMPORT + hiding, Project({"a.py": IMPORT + hiding}))
    assert after == IMPORT + hiding
    assert (
        finding.status is FindingStatus.REPORT
        and "already means something else in the surrounding code" in finding.message
    )


def test_a_name_hides_nothing_in_other_functions() -> None:
    text = f"{IMPORT}def f(OptimalDataLoaderFactory): ...\n\n{BUILD}"
    assert "OptimalDataLoaderFactory.create_loader(dataset" in migrated(text)


def test_loaders_that_settings_name_are_listed(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "train.py").write_text(IMPORT + BUILD)
    (tmp_path / "conf" / "a.yaml").write_text(
        "loader:\n  _target_: torch.utils.data.DataLoader\n# _target_: torch.utils.data.DataLoader\n"
    )
    (tmp_path / "conf" / "b.json").write_text('{"_target_": "torch.utils.data.dataloader.DataLoader"}')
    (tmp_path / "conf" / "c.toml").write_text("_target_ = 'pkg.DataLoader'\n")
    found = [one for one in plan_tree(tmp_path, jobs=1).findings if one.why == "in-settings"]
    assert [(one.path, one.line, one.rule, one.status) for one in found] == [
        ("conf/a.yaml", 2, "CHP001", FindingStatus.REPORT),
        ("conf/b.json", 1, "CHP001", FindingStatus.REPORT),
    ]
    shown = run("plan", tmp_path).stdout
    assert "3 loaders found: 1 to migrate, 2 not rewritten." in shown
    assert run("apply", tmp_path, "--no-scaffold").exit_code == 0
    assert "conf/a.yaml" in run("report", tmp_path).stdout
    assert run("plan", tmp_path, "--ignore", "CHP001").stdout.count("conf/") == 0


def test_data_are_no_settings(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IMPORT + BUILD)
    (tmp_path / "large.json").write_text("[" + "1," * 200_000 + "1]")
    (tmp_path / "small.json").write_text("{}")
    (tmp_path / "labels").mkdir()
    for number in range(201):
        (tmp_path / "labels" / f"{number}.json").write_text("{}")
    assert discover_files(tmp_path).settings == ("small.json",)


_PIECES = st.sampled_from(
    ["loaders", "my", "_my", "Net", "net", ".", '"', "'", "\\", " ", ",", "(", ")", "\n", "getattr(", "=", "1", "é"]
)


@given(st.lists(_PIECES, max_size=12).map("".join), st.sampled_from(["loaders", "my", "__init__"]))
def test_names_in_strings_are_those_of_the_plain_expression(text: str, owner: str) -> None:
    path = f"{owner}.py"
    paths = r"\.net" if owner == "__init__" else rf"\b{owner}\.net"
    plain = rf"""{paths}\\?["']|getattr\s*\([^,()]*,\s*["']net["']"""
    module = Module(path, "")
    project = Project({path: "", "other.py": text})
    is_word = re.search(r"\bnet\b", text) is not None
    assert is_named_in_strings(module, project, "net") == (is_word and re.search(plain, text) is not None)

"""The backend asks for what its migrated source imports, and nothing else in the file changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import ROOT, run, write_files

from chirp_migrate import __version__
from chirp_migrate.additions.dependency import (
    add_to_install_requires,
    add_to_project_dependencies,
    add_to_requirements,
    add_to_setup_script,
    add_to_torch_extras,
    dependency_plan,
    dependency_removal,
    remove_from_setup_script,
    runtime_requirement,
)
from chirp_migrate.engine.migration import plan_migration

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WANTED = "chirpid-patch>=0.1,<0.2"
COMMENT = "  # provides chirpid_patch, the migrated data loading"
LINE = f"{WANTED}{COMMENT}"
SETUP = "from setuptools import setup\n"


def test_the_requirement_is_the_release_line_of_this_program() -> None:
    assert runtime_requirement("0.1.0") == "chirpid-patch>=0.1,<0.2"
    assert runtime_requirement("1.12.3") == "chirpid-patch>=1.12,<2"


def test_the_tool_requires_the_runtime_that_it_adds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert runtime_requirement(__version__).replace("chirpid-patch", "chirpid-patch[gpu]") in project["dependencies"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch\nnumpy\n", f"torch\nnumpy\n{LINE}\n"),
        ("torch\nnumpy", f"torch\nnumpy\n{LINE}"),
        ("torch\r\nnumpy\r\n", f"torch\r\nnumpy\r\n{LINE}\r\n"),
        ("torch\r\nnumpy", f"torch\r\nnumpy\r\n{LINE}"),
        ("", f"{LINE}\n"),
        ("\ufefftorch\n", f"\ufefftorch\n{LINE}\n"),
        ("# chirpid-patch is not here\n", f"# chirpid-patch is not here\n{LINE}\n"),
        ("chirpid-patch-extras\n", f"chirpid-patch-extras\n{LINE}\n"),
        ("chirp-migrate==0.1.3\n", f"chirp-migrate==0.1.3\n{LINE}\n"),
    ],
)
def test_a_requirements_file_gets_one_line(before: str, after: str) -> None:
    assert add_to_requirements(before, WANTED) == after
    assert add_to_requirements(after, WANTED) == after


@pytest.mark.parametrize("line", ["chirpid-patch", "Chirpid_Patch==0.1.0", "  chirpid.patch[x] ; python_version > '3'"])
def test_a_requirement_that_is_there_in_any_spelling_stays(line: str) -> None:
    text = f"torch\n{line}\n"
    assert add_to_requirements(text, WANTED) == text


@pytest.mark.parametrize("text", ["torch==2.2 \\\n  --hash=sha256:00\n", "--require-hashes\ntorch\n", "torch \\\n"])
def test_a_requirements_file_that_a_line_would_break_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        add_to_requirements(text, WANTED)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[]", '["chirpid-patch>=0.1,<0.2"]'),
        ('["torch"]', '["torch", "chirpid-patch>=0.1,<0.2"]'),
        ('["torch",]', '["torch", "chirpid-patch>=0.1,<0.2"]'),
        (
            '[\n    "torch[x]",  # a ] comment\n]',
            '[\n    "torch[x]",  # a ] comment\n    "chirpid-patch>=0.1,<0.2",\n]',
        ),
        ("[\n  'torch' # last\n]", "[\n  'torch', # last\n  'chirpid-patch>=0.1,<0.2'\n]"),
        (
            """['tqdm', "torch; python_version<'4'"]""",
            """['tqdm', "torch; python_version<'4'", 'chirpid-patch>=0.1,<0.2']""",
        ),
        ("""["tqdm", 'torch; a=="b"']""", """["tqdm", 'torch; a=="b"', "chirpid-patch>=0.1,<0.2"]"""),
        ("[\n  # only a comment\n]", '[\n  # only a comment\n  "chirpid-patch>=0.1,<0.2"\n]'),
        ('[\r\n\t"torch",\r\n]', '[\r\n\t"torch",\r\n\t"chirpid-patch>=0.1,<0.2",\r\n]'),
        ('["torch",\n "numpy"]', '["torch",\n "numpy",\n "chirpid-patch>=0.1,<0.2"]'),
    ],
)
def test_a_project_table_gets_one_entry(before: str, after: str) -> None:
    other = '[tool.x]\ndependencies = ["not this"]\n\n[project]\nname = "b"\nversion = "1"\n'
    text = f"{other}dependencies = {before}\nrequires-python = '>=3'\n"
    expected = f"{other}dependencies = {after}\nrequires-python = '>=3'\n"
    assert add_to_project_dependencies(text, WANTED) == expected
    assert add_to_project_dependencies(expected, WANTED) == expected


def test_a_project_that_is_an_inline_table_gets_one_entry() -> None:
    text = 'project = {name = "b", dependencies = ["torch"]}\n'
    assert add_to_project_dependencies(text, WANTED) == text.replace('"torch"', '"torch", "chirpid-patch>=0.1,<0.2"')


@pytest.mark.parametrize(
    "text",
    [
        "[tool.ruff]\nline-length = 100\n",
        '[project]\nname = "b"\ndynamic = ["dependencies"]\n',
        "[project\n",
        '[project]\nname = "b"\ndependencies = ["torch"]\n[project]\nname = "c"\n',
        '[project]\nname = "b"\ndependencies = "torch"\n',
    ],
)
def test_a_pyproject_that_cannot_be_extended_for_sure_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        add_to_project_dependencies(text, WANTED)


def edits(root: Path, version: str = "0.1.0") -> tuple[dict[str, str], str | None]:
    """New text of each file that gets the entry, and the note."""
    plans, note = dependency_plan(root, version)
    assert all(one.note == "dependency" and (root / one.path).read_bytes() == one.before for one in plans)
    return {one.path: one.after.decode() for one in plans}, note


def test_a_list_of_the_package_goes_before_requirements_files(tmp_path: Path) -> None:
    write_files(tmp_path, {"requirements.txt": "torch\n"})
    assert edits(tmp_path) == ({"requirements.txt": f"torch\n{LINE}\n"}, None)

    write_files(tmp_path, {"setup.py": f"{SETUP}setup(install_requires=['torch', 'tqdm'])\n"})
    found, note = edits(tmp_path)
    assert found == {"setup.py": f"{SETUP}setup(install_requires=['torch', 'tqdm', '{WANTED}'])\n"}
    assert note == (
        "requirements.txt also names torch, as setup.py does. "
        f"If you install from requirements.txt, also add {WANTED} to that file."
    )

    write_files(tmp_path, {"pyproject.toml": '[project]\nname = "b"\ndependencies = ["torch", "rich"]\n'})
    found, note = edits(tmp_path)
    assert [*found] == ["pyproject.toml"]
    assert note is not None and note.startswith(
        "setup.py and requirements.txt also name torch, as pyproject.toml does. If "
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", f"{SETUP}setup(install_requires=['torch>=2', 'PyYAML'])\n"),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch\n    pyyaml\n"),
        ("pyproject.toml", '[project]\ndependencies = ["torch", "PyYAML>=6"]\n'),
        ("pyproject.toml", '[project]\ndependencies = ["numpy"]\n[project.optional-dependencies]\nnn = ["torch"]\n'),
    ],
)
def test_a_requirements_file_that_repeats_the_list_gets_the_line_too(tmp_path: Path, name: str, text: str) -> None:
    write_files(tmp_path, {name: text, "requirements.txt": "pyyaml==6.0\ntorch==2.9\npytest\n"})
    found, note = edits(tmp_path)
    assert {*found} == {name, "requirements.txt"} and note is None
    assert found["requirements.txt"].endswith(f"pytest\n{LINE}\n") and WANTED in found[name]
    write_files(tmp_path, found)
    assert edits(tmp_path) == ({}, None)
    removed = {one.path: one.after.decode() for one in dependency_removal(tmp_path)}
    assert {*removed} == {*found} and removed["requirements.txt"] == "pyyaml==6.0\ntorch==2.9\npytest\n"


def test_a_package_that_lists_the_runtime_itself_changes_no_other_list(tmp_path: Path) -> None:
    lists = {
        "setup.cfg": "[options]\ninstall_requires =\n    torch\n    chirpid-patch\n",
        "requirements.txt": "torch\n",
    }
    found, note = edits(write_files(tmp_path, lists))
    assert found == {} and note is not None and note.startswith("requirements.txt also names torch, as setup.cfg does")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "torch\nchirpid-patch\n"),
        ("requirements.txt", "chirpid-patch\n"),
        ("pyproject.toml", '[project]\ndependencies = ["chirpid-patch>=0.1,<0.2"]\n'),
        ("pyproject.toml", '[project.optional-dependencies]\nall = ["torch", "chirpid-patch>=0.1,<0.2"]\n'),
        ("setup.py", "setup(install_requires=['torch', 'chirpid-patch'])\n"),
    ],
)
def test_a_backend_that_asks_for_it_needs_nothing(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert dependency_plan(tmp_path, "0.1.0")[0] == []
    if name != "setup.py":
        assert dependency_plan(tmp_path, "0.1.0")[1] is None


@pytest.mark.parametrize(
    "files",
    [
        {"requirements.txt": "numpy\n", "setup.py": "setup()\n"},
        {"requirements.txt": "", "pyproject.toml": '[project]\nname = "a"\n'},
        {"pyproject.toml": '[project]\nname = "a"\ndependencies = ["numpy", "scikit-learn"]\n'},
        {"setup.cfg": "[options]\ninstall_requires =\n    numpy\n", "requirements/base.txt": "tqdm\n"},
        {"setup.py": "setup(install_requires=['numpy'])\n"},
        {"pyproject.toml": '[project]\nname = "a"\ndependencies = ["timm", "torchmetrics"]\n'},
    ],
)
def test_a_package_that_lists_no_torch_gets_no_line(tmp_path: Path, files: dict[str, str]) -> None:
    write_files(tmp_path, files)
    found, note = edits(tmp_path)
    assert found == {} and note is not None
    assert "No dependency list of the project names torch" in note and WANTED in note and "--vendor" in note


@pytest.mark.parametrize("text", ["numpy\n", ""])
def test_a_project_that_is_no_package_gets_the_line_without_torch(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, {"requirements.txt": text, "pyproject.toml": "[tool.black]\nline-length = 99\n"})
    found, note = edits(tmp_path)
    assert found["requirements.txt"].startswith(f"{text}{WANTED}") and note is None


def test_the_line_stands_in_the_list_that_names_torch(tmp_path: Path) -> None:
    project = '[project]\nname = "a"\ndependencies = ["numpy"]\n\n[project.optional-dependencies]\n'
    extras = 'plots = ["matplotlib"]\nimages = ["timm"]\n'
    extras += 'train = ["torch>=2.6"]\nall = [\n    "matplotlib",\n    "torch",\n]\n'
    write_files(tmp_path, {"requirements.txt": "numpy\n", "pyproject.toml": project + extras})
    found, note = edits(tmp_path)
    assert [*found] == ["pyproject.toml"] and note is None
    text = found["pyproject.toml"]
    assert 'dependencies = ["numpy"]' in text and 'plots = ["matplotlib"]' in text
    assert 'images = ["timm"]' in text and f'train = ["torch>=2.6", "{WANTED}"]' in text
    assert f'"torch",\n    "{WANTED}",\n]' in text
    assert add_to_torch_extras(text, WANTED) == text
    write_files(tmp_path, {"pyproject.toml": text})
    (removal,) = dependency_removal(tmp_path)
    assert removal.after.decode() == project + extras
    assert edits(tmp_path) == ({}, None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[project]\nname = "a"\ndependencies = ["torch"]\n\n'),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch\n"),
        ("setup.py", "setup(install_requires=['torch'], extras_require={'all': ['torch']})\n"),
    ],
)
def test_extras_get_nothing_if_the_main_dependencies_name_torch(tmp_path: Path, name: str, text: str) -> None:
    extras = '[project.optional-dependencies]\nall = ["torch", "matplotlib"]\n'
    write_files(tmp_path, {"pyproject.toml": extras})
    write_files(tmp_path, {name: f"{text}{extras}" if name == "pyproject.toml" else text})
    found, note = edits(tmp_path)
    assert (tmp_path / "pyproject.toml").read_text().endswith(extras)
    assert found.get("pyproject.toml", extras).endswith(extras)
    assert [*found] in ([name], [])
    assert (note is not None and f"to {name}, which names torch" in note) == (name == "setup.py")


PACKAGE = {"pyproject.toml": '[project]\nname = "a"\ndependencies = ["torch>=1.10"]\n', "a/__init__.py": ""}
TRAIN = (
    "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n\n"
    "loader = DataLoader(TensorDataset(torch.zeros(9)), batch_size=3)\n"
)


def test_examples_bring_no_dependency_to_the_package(tmp_path: Path) -> None:
    root = write_files(tmp_path, {**PACKAGE, "examples/train.py": TRAIN, "benchmarks/speed.py": TRAIN})
    planned = plan_migration(root)
    assert sorted(file.path for file in planned.files) == ["benchmarks/speed.py", "examples/train.py"]
    (note,) = planned.notes
    assert "Only files in benchmarks/ and examples/ import chirpid_patch" in note
    assert note.endswith(f'pip install "{WANTED}"')


@pytest.mark.parametrize(
    "files",
    [
        {**PACKAGE, "examples/train.py": TRAIN, "a/train.py": TRAIN},
        {**PACKAGE, "examples/train.py": TRAIN, "examples/__init__.py": ""},
        {"requirements.txt": "torch\n", "examples/train.py": TRAIN},
    ],
)
def test_other_code_that_imports_the_runtime_brings_the_dependency(tmp_path: Path, files: dict[str, str]) -> None:
    planned = plan_migration(write_files(tmp_path, files))
    assert [file.path for file in planned.files if file.note == "dependency"] == [
        "requirements.txt" if "requirements.txt" in files else "pyproject.toml"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements-dev.txt", "torch\n"),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2"\n'),
        ("setup.py", "from setuptools import setup\nD = ['torch']\nsetup(extras_require={'nn': D, 'all': D})\n"),
    ],
)
def test_a_list_that_is_not_extended_is_named(tmp_path: Path, name: str, text: str) -> None:
    write_files(tmp_path, {name: text, "setup.cfg": "[options]\ninstall_requires =\n    numpy\n"})
    found, note = edits(tmp_path)
    assert found == {} and note is not None
    assert f"add {WANTED} to {name}, which names torch" in note


@pytest.mark.parametrize("content", [None, "torch\n".encode("utf-16"), b"torch --hash=sha256:0\n"])
def test_what_cannot_be_extended_is_said_with_the_way_out(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "requirements.txt").write_bytes(content)
    found, note = edits(tmp_path)
    assert found == {}
    assert note is not None and WANTED in note and "--vendor" in note


def test_a_file_with_two_lists_that_name_torch_is_named_once(tmp_path: Path) -> None:
    lists = '[project]\ndependencies = ["torch", "rich"]\n[project.optional-dependencies]\nexamples = ["torchvision"]\n'
    write_files(tmp_path, {"requirements.txt": "torch\nnumpy\n", "pyproject.toml": lists})
    found, note = edits(tmp_path)
    assert [*found] == ["pyproject.toml"]
    assert note is not None and note.startswith("requirements.txt also names torch, as pyproject.toml does. If ")


def test_a_file_that_other_folders_share_is_left_with_a_note(tmp_path: Path) -> None:
    root = tmp_path / "backend"
    root.mkdir()
    (tmp_path / "shared.txt").write_bytes(b"torch\n")
    (root / "requirements.txt").symlink_to("../shared.txt")
    found, note = edits(root)
    assert found == {}
    assert note is not None and "link" in note and WANTED in note


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "install_requires =\n    torch\n    numpy>=1\n",
            f"install_requires =\n    torch\n    numpy>=1\n    {WANTED}\n",
        ),
        ("install_requires = torch\n", f"install_requires = torch\n    {WANTED}\n"),
        (
            "install_requires =\n\ttorch; python_version > '3'\n\n# more\nzip_safe = no\n",
            f"install_requires =\n\ttorch; python_version > '3'\n\t{WANTED}\n\n# more\nzip_safe = no\n",
        ),
        ("install_requires =\r\n  torch", f"install_requires =\r\n  torch\r\n  {WANTED}\r\n"),
    ],
)
def test_install_requires_of_a_setup_cfg_gets_one_line(before: str, after: str) -> None:
    head = "[metadata]\r\n[options]\r\n" if "\r" in before else "[metadata]\n[options]\n"
    assert add_to_install_requires(head + before, WANTED) == head + after
    assert add_to_install_requires(head + after, WANTED) == head + after


@pytest.mark.parametrize("text", ["[flake8]\n", "[options]\ninstall_requires = file: requirements.in\n", "torch\n"])
def test_a_setup_cfg_without_a_list_is_left_alone(text: str) -> None:
    with pytest.raises(ValueError):
        add_to_install_requires(text, WANTED)


def test_a_setup_cfg_is_extended_where_pyproject_lists_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.black]\n")
    (tmp_path / "setup.cfg").write_text("[options]\ninstall_requires =\n    torch\n")
    found, note = edits(tmp_path)
    assert [*found] == ["setup.cfg"] and note is None


def test_of_a_subfolder_the_dependency_is_told_for_the_project(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    (tmp_path / "pyproject.toml").write_text("[tool.black]\n")
    code = tmp_path / "package" / "train.py"
    code.parent.mkdir()
    code.write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader([1], 4, num_workers=2)\n")
    planned = plan_migration(code.parent)
    assert [file.path for file in planned.files] == ["train.py"]
    (note,) = planned.notes
    assert WANTED in note and str(Path("..", "requirements.txt")) in note
    (tmp_path / "requirements.txt").write_text(f"torch\n{WANTED}\n")
    assert plan_migration(code.parent).notes == ()


@pytest.mark.parametrize("beside", [{}, {"requirements.txt": "numpy\n"}, {"pyproject.toml": "[tool.black]\n"}])
def test_a_setup_script_is_named_as_the_place_for_the_dependency(tmp_path: Path, beside: dict[str, str]) -> None:
    for name, text in {"setup.py": "setup(install_requires=['torch'])\n", **beside}.items():
        (tmp_path / name).write_text(text)
    _, note = dependency_plan(tmp_path, __version__)
    assert note is not None and "setup.py" in note and WANTED in note


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("install_requires=['torch']", f"install_requires=['torch', '{WANTED}']"),
        ('install_requires=("torch",)', f'install_requires=("torch", "{WANTED}",)'),
        ("install_requires=['tqdm',\n    'torch']", f"install_requires=['tqdm',\n    'torch',\n    '{WANTED}']"),
        (
            "install_requires=[\n    'torch',  # é\n    # \"done\"\n]",
            f"install_requires=[\n    'torch',  # é\n    '{WANTED}',\n    # \"done\"\n]",
        ),
        (
            "é='é', install_requires=[\n  'é', \"torch; python_version < '4'\",\n  \"x\"  # last, not least\n  ]",
            "é='é', install_requires=[\n  'é', \"torch; python_version < '4'\",\n  \"x\",  # last, not least\n"
            f'  "{WANTED}"\n  ]',
        ),
        ("install_requires=[\r\n\t'torch',\r\n]", f"install_requires=[\r\n\t'torch',\r\n\t'{WANTED}',\r\n]"),
        (
            "install_requires=['six'], extras_require={'doc': ['six'],\n'nn': ['torch'], 'all': ['torch', 'six']}",
            "install_requires=['six'], extras_require={'doc': ['six'],\n"
            f"'nn': ['torch', '{WANTED}'], 'all': ['torch', 'six', '{WANTED}']}}",
        ),
        (
            "install_requires=['torch'], extras_require={'nn': ['torch']}",
            f"install_requires=['torch', '{WANTED}'], extras_require={{'nn': ['torch']}}",
        ),
    ],
)
def test_a_setup_script_gets_one_entry(before: str, after: str) -> None:
    newline = "\r\n" if "\r" in before else "\n"
    head = f"# setup(){newline}import setuptools as s{newline}{newline}s.setup("
    assert add_to_setup_script(f"{head}{before}){newline}", WANTED, 120) == f"{head}{after}){newline}"
    assert add_to_setup_script(f"{head}{after})", WANTED) == f"{head}{after})"
    assert remove_from_setup_script(f"\ufeff{head}{after})") == f"\ufeff{head}{before})"


def test_a_list_that_gets_too_long_for_its_line_gets_lines(tmp_path: Path) -> None:
    script = (
        "from setuptools import setup\n\nsetup(\n    install_requires=['torch', 'torchvision', 'scikit-learn'],\n)\n"
    )
    entries = "".join(f"        '{one}',\n" for one in ("torch", "torchvision", "scikit-learn", WANTED))
    files = {"setup.py": script, "setup.cfg": "[flake8]\nmax-line-length = 79\n", "train.py": TRAIN}
    root = write_files(tmp_path, files)
    assert run("apply", root).exit_code == 0
    after = (root / "setup.py").read_text()
    assert after.endswith(f"    install_requires=[\n{entries}    ],\n)\n")
    assert WANTED not in remove_from_setup_script(after)


def test_a_list_of_a_setup_script_may_be_a_variable_of_the_module() -> None:
    script = "from setuptools import setup\nNEEDED = [\n    'torch',\n]\nif True:\n    setup(install_requires=NEEDED)\n"
    expected = script.replace("'torch',\n", f"'torch',\n    '{WANTED}',\n")
    assert add_to_setup_script(script, WANTED) == expected and remove_from_setup_script(expected) == script


@pytest.mark.parametrize(
    "joined",
    [
        "sum(extras.values(), [])",
        "sorted(set(sum(extras.values(), [])))",
        "list(itertools.chain(*extras.values()))",
        "list(chain.from_iterable(extras.values()))",
        "[one for each in extras.values() for one in each]",
        "list({one for each in extras.values() for one in each})",
    ],
)
def test_extras_that_the_script_also_joins_are_extended(joined: str) -> None:
    head = "from setuptools import setup\nextras = {'nn': ['torch'], 'web': ['six']}\n"
    script = f"{head}extras['all'] = {joined}\nsetup(extras_require=extras)\n"
    expected = script.replace("['torch']", f"['torch', '{WANTED}']")
    assert add_to_setup_script(script, WANTED) == expected and remove_from_setup_script(expected) == script


@pytest.mark.parametrize(
    "script",
    [
        "extras = {'nn': ['torch']}\nextras['nn'] = []\nsetup(extras_require=extras)",
        "extras = {'nn': ['torch']}\nextras[name] = []\nsetup(extras_require=extras)",
        "extras = {NN: ['torch']}\nextras['nn'] = sum(extras.values(), [])\nsetup(extras_require=extras)",
        "extras = {**more, 'nn': ['torch']}\nextras['all'] = sum(extras.values(), [])\nsetup(extras_require=extras)",
        "extras = {'nn': ['torch']}\nextras['all'] = [v[-1] for v in extras.values()]\nsetup(extras_require=extras)",
        "extras = {'nn': ['torch']}\nfor v in extras.values():\n    v.clear()\nsetup(extras_require=extras)",
        "extras = {'nn': ['torch']}\nassert len(sum(extras.values(), [])) == 1\nsetup(extras_require=extras)",
        "extras = {'nn': ['torch']}\nprint(extras['nn'])\nsetup(extras_require=extras)",
        "setup(install_requires=['torch', *more])",
        "setup(install_requires=['torch'] + more)",
        "setup(install_requires=['torch' if cuda else 'torch'])",
        "setup(install_requires=[('torch')])",
        "setup(install_requires=['torch'  # a\n  ,])",
        "setup(install_requires=needed)",
        "needed = ['torch']\nneeded += ['six']\nsetup(install_requires=needed)",
        "needed = ['torch']\nprint(needed)\nsetup(install_requires=needed)",
        "needed = 'torch', 'six'\nsetup(install_requires=needed)",
        "def f(needed):\n    setup(install_requires=needed)\nneeded = ['torch']",
        "if cuda:\n    setup(install_requires=['torch'])\nelse:\n    setup(install_requires=['torch'])",
        "def setup(**_): ...\nsetup(install_requires=['torch'])",
        "more = ['torch']\nsetup(extras_require={'a': ['torch'], 'b': more, 'c': more})",
    ],
)
def test_a_setup_script_without_a_plain_list_is_named(tmp_path: Path, script: str) -> None:
    head = "" if "def setup" in script else "from setuptools import setup\n"
    write_files(tmp_path, {"setup.py": head + script})
    found, note = edits(tmp_path)
    assert found == {} and note is not None and WANTED in note
    assert remove_from_setup_script(head + script) == head + script


def test_a_plain_list_in_a_setup_script_is_extended_and_rolled_back(tmp_path: Path) -> None:
    script = "from setuptools import setup\nsetup(\n    install_requires=[\n        'torch'\n    ]\n)"
    root = write_files(tmp_path, {"train.py": TRAIN, "setup.py": script})
    assert run("apply", root).exit_code == 0
    assert (root / "setup.py").read_text() == script.replace("'torch'", f"'torch',\n        '{WANTED}'")
    assert run("rollback", root).exit_code == 0 and (root / "setup.py").read_text() == script

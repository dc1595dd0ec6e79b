"""Notebooks are rewritten cell by cell: what is not Python, and every byte outside the changed cells, stays."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient

import chirpid_patch
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.rules import all_rules
from chirp_migrate.source.notebook import NotebookSource
from chirp_migrate.source.text import UnreadableSource
from chirp_migrate.syntax.project import Project

NOTEBOOKS = Path(__file__).parents[2] / "fixtures" / "notebooks"
RULES = [rule for rule in all_rules() if rule.code in ("CHP001", "CHP007")]
PYTHON = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
IMPORTS = "from torch.utils.data import DataLoader"
FACTORY = "from chirpid_patch import OptimalDataLoaderFactory"
LAYOUTS: list[dict[str, Any]] = [
    {"indent": 1, "ensure_ascii": False},
    {"indent": 2, "ensure_ascii": True},
    {"indent": 4, "ensure_ascii": False, "sort_keys": True},
    {"indent": "\t", "ensure_ascii": True},
    {"ensure_ascii": False},
    {"separators": (",", ":"), "ensure_ascii": True},
]


def notebook(*sources: str, as_list: bool = True, **changes: Any) -> dict[str, Any]:
    """A notebook of code cells."""
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{number}",
            "metadata": {"tags": ["größer"]},
            "outputs": [],
            "source": source.splitlines(keepends=True) if as_list else source,
        }
        for number, source in enumerate(sources)
    ]
    return {"cells": cells, "metadata": PYTHON, "nbformat": 4, "nbformat_minor": 5, **changes}


def read(*sources: str) -> NotebookSource:
    return NotebookSource.from_bytes(json.dumps(notebook(*sources)).encode())


def sources(data: bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"]]


def migrated(source: NotebookSource) -> bytes:
    text, _ = rewrite_text("n.ipynb", source.text, Project({"n.ipynb": source.text}), unsafe=True, rules=RULES)
    return source.encode(text)


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_the_source_of_a_changed_cell_changes(layout: dict[str, Any], as_list: bool, newline: str) -> None:
    def dump(changed: str) -> bytes:
        # The last string holds a form feed and a line separator, at which nbformat splits lines, too.
        cells = ["x = 1\n\ny = 'ü \U0001f426'", changed, "", "%time x\n", "z = '\f \u2028'\n"]
        text = json.dumps(notebook(*cells, as_list=as_list), **layout) + "\n"
        return text.replace("\n", newline).encode()

    before, after = "a = 'ß'\nalpha = 2  # \"old\"\nb = 3;", "a = 'ß'\nbeta = 2  # \"new\" \\ \nü = 4\nb = 3;"
    source = NotebookSource.from_bytes(dump(before))
    assert source.encode(source.text) == source.data == dump(before)
    assert source.encode(source.text.replace(before, after)) == dump(after)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (r'["x = \"\u00E9\\n\u003c\"\n", "alpha"]', r'["x = \"\u00E9\\n\u003c\"\n", "beta"]'),
        (r'"x = \"\u00E9\\n\/\"\nalpha"', r'"x = \"\u00E9\\n\/\"\nbeta"'),
        ('["alpha\\nx"]', '["beta\\nx"]'),  # a whole cell in one element, as sphinx-gallery writes it
        ('["al", "pha\\nx"]', '["beta\\n", "x"]'),
        ('[ "alpha" ,\n\t"x" ]', '[ "betax" ]'),
        ('[\n   "alpha"\n]', '[\n   "beta"\n]'),
    ],
)
def test_a_changed_source_keeps_its_form_and_the_escapes_of_other_lines(written: str, expected: str) -> None:
    raw = json.dumps(notebook("HERE", as_list=False)).replace("größer", "")
    source = NotebookSource.from_bytes(raw.replace('"HERE"', written).encode())
    assert source.encode(source.text.replace("alpha", "beta")).decode() == raw.replace('"HERE"', expected)


lines = st.sampled_from(
    ["x = 1", "%time x", "if x:\n    !ls", "y = !ls", "x?", "'''\n%no\n'''", "(1\n% 2)", "", "%%time"]
)
words = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=8).map("# {}".format)
cells = st.lists(lines | words | st.text(max_size=8), max_size=5).map("\n".join)


@given(st.lists(cells, max_size=5), st.sampled_from(LAYOUTS), st.booleans())
def test_every_notebook_comes_back(sources: list[str], layout: dict[str, Any], as_list: bool) -> None:
    def dump(last: str) -> bytes:
        return json.dumps(notebook(*sources, last, as_list=as_list), **layout).encode()

    source = NotebookSource.from_bytes(dump("edited = 1"))
    assert source.encode(source.text) == source.data
    assert source.encode(source.text.replace("edited = 1", "edited = 2")) == dump("edited = 2")


def test_byte_order_mark_and_what_nbformat_writes_come_back(tmp_path: Path) -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%time x\ny = 1"), nbformat.v4.new_raw_cell("!x")])
    nbformat.write(made, tmp_path / "n.ipynb")
    source = NotebookSource.from_bytes((tmp_path / "n.ipynb").read_bytes())
    assert source.encode(source.text) == (tmp_path / "n.ipynb").read_bytes()
    marked = NotebookSource.from_bytes(b"\xef\xbb\xbf" + source.data)
    assert marked.encode(marked.text.replace("y = 1", "y = 2")) == marked.data.replace(b"y = 1", b"y = 2")


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("fixtures/**/*.ipynb")), ids=lambda p: p.name)
def test_notebooks_of_the_fixtures_come_back(path: Path) -> None:
    source = NotebookSource.from_bytes(path.read_bytes())
    assert source.encode(source.text) == path.read_bytes()
    ast.parse(source.text)


MAGICS = [
    "%matplotlib inline\nx = 1",
    "!pip install a \\\n  b\nx = 1",
    "if x:\n    !ls\nelse:\n\t%time f(x)",
    "files = !ls \\\n  -l\nf(files)",
    "d['='] = %env USER\nf(1, a=2)",
    "f(a == b, '=!')\ny = !ls",
    "x?\nx.y??\n?x\n??x",
    "%time?",
    "!!ls",
    "x = 3 # really?\ny = 'what?'\n!ls",
    "'''\n%no\n!no\n'''\n%yes",
    "y = (a\n% b)\n!ls",
    "y = a \\\n% b\n!ls 'it''s (",
    "x = 1;\n%time x;",
    "await f()\nasync for a in b:\n    !ls",
    "def f():\r\n    !ls\r\n    return 1\r\n",
    "s = f'{x!r:%d}'\n%time s",
    "!echo '''\nx = 2",
    "# %%time\n!ls",
]


class Normal(ast.NodeTransformer):
    """Calls of IPython, and what stands for them, under one name."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func)
        is_magic = called.startswith(("get_ipython()", "_chirp_cell"))
        return ast.Name("MAGIC", ast.Load()) if is_magic else self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.AST:
        is_magic = node.names[0].name.startswith("_chirp_cell")
        return ast.Expr(ast.Name("MAGIC", ast.Load())) if is_magic else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return None if ast.unparse(node.target).startswith("_chirp_cell") else node


@pytest.mark.parametrize("cell", MAGICS)
def test_magics_are_found_where_ipython_finds_them(cell: str) -> None:
    source = read(f"{cell}\nedited = 1")
    theirs = ast.parse(TransformerManager().transform_cell(f"{cell}\nedited = 1"))
    ours = ast.parse(source.text)
    assert ast.dump(Normal().visit(ours)) == ast.dump(Normal().visit(theirs))
    assert sources(source.encode(source.text.replace("edited = 1", "edited = 2"))) == [f"{cell}\nedited = 2"]


@pytest.mark.parametrize("cell", ["%%bash\nls - l", "%%writefile a.py\nx = 1", "%%capture\n%%html\n<b>x</b>"])
def test_cells_of_another_language_are_not_read(cell: str) -> None:
    source = read("x = 1", cell, "y = 2")
    assert [list(one) for one in source.masked] == [[2, 1, cell]]
    assert not source.unreadable
    assert sources(source.encode(source.text.replace("y = 2", "y = 3"))) == ["x = 1", cell, "y = 3"]


def test_cells_that_an_editor_marks_as_another_language_are_not_read() -> None:
    made = notebook("x = 1", "SELECT 1", "y = 2")
    made["cells"][1]["metadata"] = {"vscode": {"languageId": "sql"}}
    source = NotebookSource.from_bytes(json.dumps(made).encode())
    assert "SELECT" not in source.text and not source.unreadable
    assert sources(source.encode(source.text.replace("y = 2", "y = 3"))) == ["x = 1", "SELECT 1", "y = 3"]


def test_code_may_contain_the_words_that_stand_for_cells() -> None:
    cells = ["x = '_chirp_cell'\n%time x", "y = 2"]
    source = read(*cells)
    assert sources(source.encode(source.text.replace("y = 2", "y = 3"))) == [cells[0], "y = 3"]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("x = 1\nfor each batch:\n  train", "line 2: "),
        ("!ls \\\n  -l\nprint 'x'", "line 3: "),
        ("x = '\ud800'", "surrogate"),
        ("    x = 1", "line 1: unexpected indent"),
    ],
)
def test_a_cell_that_is_no_python_is_named_and_the_others_are_read(cell: str, said: str) -> None:
    source = read("x = 1", cell, "y = 2")
    ((number, reason),) = source.unreadable
    assert number == 2 and said in reason
    assert sources(source.encode(source.text.replace("y = 2", "y = 3"))) == ["x = 1", cell, "y = 3"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file cannot be read as a notebook"),
        (b'{"cells": [{]}', "the file cannot be read as a notebook"),
        (b'{"cells" []}', "the file cannot be read as a notebook: Expecting ':'"),
        (b'{"cells": [], "nbformat": 4} x', "Extra data"),
        (b'{"cells": [{"source": "", "source": ""}], "nbformat": 4}', "twice"),
        (b"[" * 100_000, "the file cannot be read as a notebook"),
        (b"[1]", "not a notebook"),
        (b"3", "not a notebook"),
        (b'{"a": 1}', "not a notebook"),
        (b"\xff\xfe{}", "byte 0 is not valid utf-8"),
        (b'{"worksheets": [], "nbformat": 3}', "the notebook has format 3, not 4"),
        (b'{"cells": {}, "nbformat": 4}', "not a list"),
        (b'{"worksheets": [], "nbformat": 4}', "not a list"),
        (b'{"cells": [1], "nbformat": 4}', "cell 1 has no cell type"),
        (b'{"cells": [{"cell_type": "code"}], "nbformat": 4}', "cell 1 has no source"),
        (b'{"cells": [{"cell_type": "code", "source": [1]}], "nbformat": 4}', "source of cell 1"),
        (b'{"cells": [], "metadata": {"language_info": {"name": "R"}}, "nbformat": 4}', "runs R, not Python"),
    ],
)
def test_what_is_no_notebook_of_python_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(UnreadableSource, match=said):
        NotebookSource.from_bytes(data)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# %% _chirp_cell 2\n", "", "cannot be divided into the cells of the notebook"),
        ("# %% _chirp_cell 2\n", "# %% _chirp_cell 1\n", "cannot be divided into the cells of the notebook"),
        ("x = 1", "x = [", "after the rewrite, a cell is not valid Python"),
        ("import _chirp_cell_1\n", "", "magic"),
        ("import _chirp_cell_1", "import _chirp_cell_1, os", "magic"),
        ("import _chirp_cell_1", "import _chirp_cell_1\nimport _chirp_cell_1", "magic"),
        ("import _chirp_cell_2", "import os\nimport _chirp_cell_2", "magic"),
        ("_chirp_cell_3()", "[_chirp_cell_3()]", "magic"),
        ("x = 1", "x = partial(f)", "further down"),
    ],
)
def test_a_rewrite_that_would_mix_up_cells_or_magics_is_refused(old: str, new: str, said: str) -> None:
    source = read("%time x\nx = 1", "%%time\ny = !ls", "from functools import partial")
    assert source.text.count(old) == 1
    with pytest.raises(UnreadableSource, match=said):
        source.encode(source.text.replace(old, new))


def test_lines_are_told_by_cell() -> None:
    made = notebook("one = 1\n\nthree = 3", "!a \\\n  b\nthree = 3", "%%bash\n", "last")
    made["cells"].insert(1, {"cell_type": "markdown", "metadata": {}, "source": "# %%"})
    source = NotebookSource.from_bytes(json.dumps(made).encode())
    places = [source.locate(number) for number, line in enumerate(source.text.split("\n"), 1) if "three" in line]
    assert places == [(1, 3), (3, 3)]
    assert source.locate(1) == (1, 1)
    assert source.locate(len(source.text.split("\n"))) == (5, 1)
    assert [one[:2] for one in source.masked] == [(3, 1), (4, 1)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            ["!pip install torch", IMPORTS, "loader = DataLoader(data, 4)"],
            ["!pip install torch", FACTORY, "loader = OptimalDataLoaderFactory.create_loader(data, 4)"],
            id="imports go behind the installation",
        ),
        pytest.param(
            [f"{IMPORTS}\n\nx = 1", "%%time\nloader = DataLoader(data, 4);"],
            [
                f"{FACTORY}\n\nx = 1",
                "%%time\nloader = OptimalDataLoaderFactory.create_loader(data, 4);",
            ],
            id="cell magics stay first",
        ),
        pytest.param(
            [f"%%capture\n{IMPORTS}", "x = 1", "# Ours.\nloader = DataLoader(data, 4)\n"],
            [
                f"%%capture\n{FACTORY}",
                "x = 1",
                "# Ours.\nloader = OptimalDataLoaderFactory.create_loader(data, 4)\n",
            ],
            id="captured imports",
        ),
        pytest.param(
            [IMPORTS, "loader = DataLoader(data, 4)", "%time list(DataLoader(data))"],
            [
                f"{IMPORTS}\n{FACTORY}",
                "loader = OptimalDataLoaderFactory.create_loader(data, 4)",
                "%time list(DataLoader(data))",
            ],
            id="a magic still needs the import",
        ),
        pytest.param(
            ["import torch", "# Names.\nload = Data(transform=lambda x: x + 1)"],
            ["import torch", "def _add_1(x):\n    return x + 1\n\n\n# Names.\nload = Data(transform=_add_1)"],
            id="definitions go into the cell that needs them",
        ),
        pytest.param(
            ["import torch", "add = lambda x: x + 1", "load = Data(transform=add)"],
            ["import torch", "def add(x):\n    return x + 1", "load = Data(transform=add)"],
            id="a lambda of a cell becomes a function in that cell",
        ),
        pytest.param(
            ["import torch", "%%time\nload = Data(transform=lambda x: x + 1)"],
            ["import torch", "%%time\ndef _add_1(x):\n    return x + 1\n\n\nload = Data(transform=_add_1)"],
            id="definitions stay below a cell magic",
        ),
        pytest.param(
            [f"%%timeit\n{IMPORTS}\nload = DataLoader(data, 4)"],
            [f"%%timeit\n{FACTORY}\nload = OptimalDataLoaderFactory.create_loader(data, 4)"],
            id="a timed cell has imports of its own",
        ),
    ],
)
def test_cells_are_rewritten_where_they_stand(before: list[str], after: list[str]) -> None:
    data = migrated(read(*before))
    assert sources(data) == after
    assert migrated(NotebookSource.from_bytes(data)) == data


def test_no_cell_relies_on_the_imports_of_a_timed_one() -> None:
    source = read(f"%%timeit\n{IMPORTS}\nDataLoader(data)", f"x = 1\n{IMPORTS}\nDataLoader(data)")
    with pytest.raises(UnreadableSource, match="further down"):
        migrated(source)


@pytest.mark.parametrize("name", ["train.ipynb", "magics.ipynb"])
def test_notebooks_are_migrated_and_nothing_else_changes(name: str) -> None:
    source = NotebookSource.from_bytes((NOTEBOOKS / name).read_bytes())
    data = migrated(source)
    before, after = json.loads(source.data), json.loads(data)
    nbformat.validate(nbformat.from_dict(after))
    assert "OptimalDataLoaderFactory.create_" in data.decode()
    changed = [one for one, other in zip(before["cells"], after["cells"], strict=True) if one != other]
    assert 0 < len(changed) < len(before["cells"]) / 2
    for one, other in zip(before["cells"], after["cells"], strict=True):
        assert {**one, "source": ""} == {**other, "source": ""}
    # The same layout, too: writing it all anew in the style of the file gives the same bytes.
    style: dict[str, Any] = {"indent": 1, "ensure_ascii": False} if name == "train.ipynb" else {"indent": 2}
    ending = {"train.ipynb": "\n", "magics.ipynb": ""}[name]
    newline = "\n" if name == "train.ipynb" else "\r\n"
    assert data == (json.dumps(after, **style) + ending).replace("\n", newline).encode()
    assert migrated(NotebookSource.from_bytes(data)) == data


def test_what_the_rules_cannot_see_is_told() -> None:
    source = NotebookSource.from_bytes((NOTEBOOKS / "magics.ipynb").read_bytes())
    assert [number for number, _ in source.unreadable] == [9]
    assert (7, 1, "%timeit -n1 -r1 list(Loader(data))") in source.masked
    assert (5, 4, "!nproc") in source.masked


@pytest.mark.slow
def test_a_migrated_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(chirpid_patch.__file__).parents[1]), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    data = migrated(NotebookSource.from_bytes((NOTEBOOKS / "train.ipynb").read_bytes()))
    assert b"lambda" not in data and b"import DataLoader" not in data
    made = nbformat.reads(data.decode(), as_version=4)
    stored = [cell.get("outputs") for cell in made.cells]
    NotebookClient(made, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.get("outputs") for cell in made.cells]
    assert [outputs[n] for n in (5, 7)] == [stored[n] for n in (5, 7)]

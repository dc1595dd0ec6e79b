"""Reading one module: exact spans in text that LibCST does not give back, and what a name stands for."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest
import torch.utils.data.dataloader
from libcst.metadata import MetadataWrapper, PositionProvider, QualifiedNameProvider, QualifiedNameSource

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.syntax.module import Module, UnparsableModule, syntax_tree, walk_tree
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import one_line_source

REAL = Path(torch.utils.data.dataloader.__file__)


def test_spans_are_those_of_libcsts_own_provider() -> None:
    module = Module("dataloader.py", REAL.read_text(encoding="utf-8"))
    positions = MetadataWrapper(module.tree, unsafe_skip_copy=True).resolve(PositionProvider)
    for node in module.parents:
        place = positions[node].start
        assert module.position(module.span(node)[0]) == (place.line, place.column + 1)


@pytest.mark.parametrize(
    ("source", "shown"),
    [("x.to(\n    device\n)", "x.to(device)"), ("x.to(\r\n    [1,\r\n     2])", "x.to([1, 2])"), ("f( x )", "f( x )")],
)
def test_an_expression_of_several_lines_is_shown_in_one(source: str, shown: str) -> None:
    module = Module("a.py", f"y = {source}\n")
    assert one_line_source(module, module.find(cst.Call)[0]) == shown


@pytest.mark.slow
def test_imported_names_are_those_of_libcsts_own_provider() -> None:
    module = Module("dataloader.py", REAL.read_text(encoding="utf-8"))
    theirs = MetadataWrapper(module.tree, unsafe_skip_copy=True).resolve(QualifiedNameProvider)
    compared = 0
    for call in module.find(cst.Call):
        found = theirs[call.func]
        names = {one.name for one in (found() if callable(found) else found)}
        if all(one.source is QualifiedNameSource.IMPORT for one in (found() if callable(found) else found)) and names:
            assert module.qualified_names(call.func) in (names, set())  # a method of a result is no function's name
            compared += 1
    assert compared > 30


@pytest.mark.parametrize(
    "text",
    [
        "import os\n\f\nx = call( 1 )\n",
        "import os\n\f# comment\nx = call( 1 )\n",
        "def f():\n    try:\n        pass\n    except (ValueError) :\n        x = call( 1 )\n",
        "def f():\n    x = call( 1 )\n\f\n    y = 2\n",
        "x = call( 1 )\n   \n\t\n",
        "x = call( 1 )\n\n\n   ",
        "if a :\n\tx = call( 1 )\n",
        "x = call( 1 ) ; y = 2 ;\n",
        "x = \\\n  call( 1 )\n",
        "class A :\n    x = call( 1 )\n    \n  # odd\n",
        "x = call( 1 )",
        "# -*- x -*-\r\nx = call( 1 )\r\ny = 2\n",
        "x = [\n  call( 1 ),\n\f\n]\n",
        "async  def f( ) :\n    async  with a as b , c :\n        x = call( 1 )\n",
        "match a :\n    case  [ 1 , *_ ] :\n        x = call( 1 )\n",
        "",
        "\n",
        "# only a comment",
    ],
)
def test_spans_of_text_that_libcst_writes_otherwise(text: str) -> None:
    module = Module("a.py", text)
    for call in module.find(cst.Call):
        start, end = module.span(call)
        assert text[start:end] == "call( 1 )"
    for node in module.find(cst.Name, cst.Integer):
        start, end = module.span(node)
        assert text[start:end] == node.value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = (\n", "syntax error in line 1"),
        ("print 'old'\n", "syntax error in line 1"),
        ("x = " + "(" * 5000 + "1" + ")" * 5000 + "\n", "nested too deeply"),
        ("x = " + "+".join(["1"] * 20000) + "\n", "nested too deeply"),
        ("x = " + "-" * 20000 + "1\n", "nested too deeply"),
        ("x = a" + ".b" * 20000 + "\n", "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(UnparsableModule, match=reason):
        Module("a.py", text)


def test_everything_around_an_edit_survives() -> None:
    text = (
        "from torch.utils.data import DataLoader\r\n\f\r\ntry :\n    val = DataLoader( d ,num_workers = 0 ) # why\n"
        "except (ValueError) :\r    pass\n \n\t\n"
    )
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}))
    assert after == text.replace("DataLoader( d ", "LOADER( d ").replace(
        "from torch.utils.data import DataLoader", "from chirpid_patch import OptimalDataLoaderFactory"
    ).replace("LOADER", "OptimalDataLoaderFactory.create_validation_loader")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import mark.b\nmark", {"mark"}),
        ("import a.b as mark\nmark", {"a.b"}),
        ("from a import b as mark\nmark", {"a.b"}),
        ("from . import mark\nmark", {"pkg.mark"}),
        ("from ..x import mark\nmark", {"x.mark"}),
        ("from a import mark\nclass C:\n    mark = 1\n    def f(self): return mark", {"a.mark"}),
        ("from a import mark\nclass C:\n    mark = 1\n    x = mark", {"pkg.m.C.mark"}),
        ("from a import mark\ndef f(mark): return mark", {"pkg.m.f.<locals>.mark"}),
        ("from a import mark\ndef f(x=mark, *, mark=2): pass", {"a.mark"}),
        ("from a import mark\ndef f(x: mark): mark = 1", {"a.mark"}),
        ("from a import mark\n[0 for mark in mark]", {"a.mark"}),
        ("from a import mark\n[mark for mark in b]", {"pkg.m.<listcomp>.mark"}),
        ("from a import mark\n[0 for x in b for mark in mark]", {"pkg.m.<listcomp>.mark"}),
        ("from a import mark\n(lambda mark: mark)", {"pkg.m.<lambda>.mark"}),
        ("from a import mark\n(lambda x=mark: 0)", {"a.mark"}),
        ("def f():\n    [mark := 1 for x in b]\n    return mark", {"pkg.m.f.<locals>.mark"}),
        ("from a import mark\ndef f():\n    global mark\n    mark = 1\n    return mark", {"a.mark", "pkg.m.mark"}),
        ("def f():\n    from a import mark\n    def g():\n        return mark", {"a.mark"}),
        (
            "def f():\n    mark = 1\n    def g():\n        nonlocal mark\n        mark = 2\n        return mark",
            {"pkg.m.f.<locals>.mark"},
        ),
        ("from a import mark\nmatch x:\n    case [mark, *rest]: pass", {"a.mark", "pkg.m.mark"}),
        ("with a as (mark, b): mark", {"pkg.m.mark"}),
        ("try: pass\nexcept E as mark: mark", {"pkg.m.mark"}),
        ("for mark, (b, *c) in d: mark", {"pkg.m.mark"}),
        ("from a import *\nmark", {"a.mark"}),
        ("from .a import *\nfrom os import *\nmark", {"pkg.a.mark"}),
        ("from a import *\nlen(mark)", {"a.mark"}),
        ("mark", set()),
    ],
)
def test_what_a_name_stands_for(text: str, names: set[str]) -> None:
    module = Module("pkg/m.py", text + "\n")
    last = [one for one in module.find(cst.Name) if one.value == "mark" and _may_be_read(module, one)][-1]
    assert module.qualified_names(last) == names


def _may_be_read(module: Module, name: cst.Name) -> bool:
    parent = module.parents[name]
    return not isinstance(parent, cst.Param | cst.AssignTarget | cst.NameItem) or getattr(parent, "default", 0) is name


def test_a_walk_through_a_tree_omits_only_contexts_and_operators() -> None:
    tree = syntax_tree(REAL.read_text(encoding="utf-8"))
    left_out = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
    assert walk_tree(tree) == [one for one in ast.walk(tree) if not isinstance(one, left_out)]


def test_a_tree_that_is_in_use_is_not_parsed_again() -> None:
    texts = [f"a = {number}\n" for number in range(9)]
    trees = [syntax_tree(text) for text in texts]
    assert all(syntax_tree(text) is tree for text, tree in zip(texts, trees, strict=True))

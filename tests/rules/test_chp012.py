"""Local functions that loaders hold: what moves, that it does the same and can be pickled, and what is left alone."""

from __future__ import annotations

import pickle
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import support
from support import RULES, imported

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import Finding, FindingStatus
from chirp_migrate.syntax.project import Project

HEADER = "import inspect\nfrom torch.utils.data import DataLoader, Dataset\n"


def migrate(text: str, codes: str = "CHP012", **others: str) -> tuple[str, list[Finding]]:
    """Apply rules to a module that knows loaders and datasets."""
    return support.migrate(codes, HEADER + textwrap.dedent(text), **others)


def reported(text: str, codes: str = "CHP012", **others: str) -> str:
    """The one reason for which a module is left as it is."""
    after, findings = migrate(text, codes, **others)
    assert after == HEADER + textwrap.dedent(text)
    assert [one.status for one in findings] == [FindingStatus.REPORT]
    return findings[0].message


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    return partial(imported, folder=tmp_path, monkeypatch=monkeypatch)


#: Name, and the source of a module with a function ``make(samples)`` that gives a loader with a local ``collate_fn``.
SHAPES = {
    "no capture": """
        def make(samples):
            def collate(batch):
                return sum(batch)
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "parameter": """
        def make(samples, pad=3):
            def collate(batch):
                return sum(batch) + pad
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "by position": """
        def make(samples):
            def collate(batch):
                return sum(batch)
            return DataLoader(samples, 2, False, None, None, 0, collate)
    """,
    "defaults": """
        def make(samples, pad=3):
            def collate(batch, a=1, b=[pad], *, c=pad + 1, d="x"):
                return sum(batch) + a + b[0] + c, d
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "positional only, any arguments, trailing comma": """
        def make(samples, pad=3):
            def collate(
                batch,  # the samples
                /,
                *rest,
            ):
                return sum(batch) + pad, rest
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "one line": """
        def make(samples):
            import math
            pad = 2
            def collate(batch): return math.sqrt(sum(batch)) + pad
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "local imports": """
        def make(samples):
            import os.path, math as m
            from collections import Counter as C
            def collate(batch):
                '''Count.'''
                # by hand
                return C(batch), m.pi, os.path.join("a", "b")
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "helpers": """
        def make(samples, pad=1):
            def twice(x):
                return 2 * add(x)
            add = lambda x: x + pad
            def collate(batch):
                return [twice(x) for x in batch]
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """.replace("def twice", "add = lambda x: x + pad\n            def twice").replace(
        "            add = lambda x: x + pad\n            def collate", "            def collate"
    ),
    "strings of several lines": '''
        def make(samples, pad=3):
            def collate(batch):
                """Stack.

                Well.
                """
                text = """a
                  b
            c"""
                return sum(batch) + pad, text, f"""{pad}
                  x"""
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    ''',
    "tabs": """
        def make(samples, pad=3):
        \tdef collate(batch):
        \t\tif pad:
        \t\t\treturn sum(batch) + pad
        \treturn DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "branches": """
        def make(samples, pad=3):
            if pad > 5:
                def collate(batch):
                    return sum(batch) + pad
            else:
                def collate(batch):
                    return sum(batch) - pad
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "value of a branch that returns": """
        def make(samples, pad=None):
            if pad is None:
                pad = 4
                def collate(batch):
                    return sum(batch) + pad
                return DataLoader(samples, collate_fn=collate, batch_size=2)
            pad = 9
            return pad
    """,
    "both branches bind": """
        def make(samples, flag=True):
            if flag:
                pad = 1
            else:
                pad = 2
            with open(__file__) as file, open(__file__):
                lines = len(file.readlines()) * 0
            def collate(batch):
                return sum(batch) + pad + lines
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "a loop it does not outlive": """
        def make(samples):
            for pad in (1, 2):
                scale = pad * 2
                def collate(batch):
                    return sum(batch) * scale
                loader = DataLoader(samples, collate_fn=collate, batch_size=2)
                if len(loader) + len(list(loader)) == 4:
                    return loader
    """,
    "dict of arguments": """
        def make(samples):
            def collate(batch):
                return sum(batch)
            options = {"batch_size": 2, "collate_fn": collate}
            return DataLoader(samples, **options)
    """,
    "entry of a dict": """
        def make(samples):
            options = dict(batch_size=2)
            def collate(batch):
                return sum(batch)
            options["collate_fn"] = collate if samples else None
            return DataLoader(samples, **options)
    """,
    "returned by a maker": """
        def batcher(pad):
            def inner(batch):
                return sum(batch) + pad
            return inner

        def make(samples):
            return DataLoader(samples, collate_fn=batcher(2), batch_size=2)
    """,
    "parameter of a helper": """
        def loader(samples, collate_fn, size=2):
            return DataLoader(samples, size, collate_fn=collate_fn)

        def make(samples):
            def merge(batch):
                return sum(batch)
            return loader(samples, merge)
    """,
    "functools.partial": """
        import functools

        def make(samples):
            def merge(batch, pad):
                return sum(batch) + pad
            return DataLoader(samples, collate_fn=functools.partial(merge, pad=2), batch_size=2)
    """,
    "recursive": """
        def make(samples):
            def collate(batch):
                return batch[0] + collate(batch[1:]) if batch else 0
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "recursive, its name taken": """
        def collate(batch):
            return "other"

        def make(samples):
            def collate(batch):
                return f"{batch[0]}{collate(batch[1:])}" if batch else ""
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "annotations": """
        import torch

        def make(samples, pad: "unknown" = 1):
            def collate(batch: list[torch.Tensor], *, more: "Later" = None) -> "Later":
                return sum(batch) + pad
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "no_grad": """
        import torch

        def make(samples):
            # about it
            @torch.no_grad()
            def collate(batch):
                return torch.is_grad_enabled(), sum(batch)
                # the end
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "generator": """
        def make(samples, pad=3):
            def collate(batch):
                for x in batch:
                    yield x + pad
            return DataLoader(samples, collate_fn=collate, batch_size=2)
    """,
    "self": """
        class Maker:
            def __init__(self):
                self.pad = 4

            def loader(self, samples, scale=2):
                def collate(batch):
                    return sum(batch) * scale + self.pad
                return DataLoader(samples, collate_fn=collate, batch_size=2)
                # behind

        def make(samples):
            return Maker().loader(samples)
    """,
    "decorated function around it": """
        import functools

        # cached
        @functools.lru_cache
        def options():
            def collate(batch):
                return sum(batch)
            return {"collate_fn": collate, "batch_size": 2}

        def make(samples):
            return DataLoader(samples, **options())
    """,
    "an attribute given to the loader": """
        class Maker:
            def __init__(self, pad):
                def merge(batch):
                    return sum(batch) + pad
                self.merge = merge

            def loader(self, samples):
                return DataLoader(samples, collate_fn=self.merge, batch_size=2)

        def make(samples):
            return Maker(3).loader(samples)
    """,
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_loader_collates_as_before_and_can_be_pickled(
    shape: str, newline: str, load: Callable[[str], ModuleType]
) -> None:
    before = (HEADER + textwrap.dedent(SHAPES[shape])).replace("\n", newline)
    project = Project({"a.py": before})
    after, findings = rewrite_text("a.py", before, project, rules=[RULES["CHP007"], RULES["CHP012"]])
    assert {one.status for one in findings} == {FindingStatus.REWRITE}
    assert newline == "\n" or "\n" not in after.replace("\r\n", "")
    again, _ = rewrite_text("a.py", after, Project({"a.py": after}), rules=[RULES["CHP007"], RULES["CHP012"]])
    assert again == after

    old, new = (load(text).make([1, 2, 3]) for text in (before, after))
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(old.collate_fn)
    copy = pickle.loads(pickle.dumps(new.collate_fn))
    for batch in ([1, 2], [3]):
        expected = values(old.collate_fn(batch))
        assert values(new.collate_fn(batch)) == values(copy(batch)) == expected


def values(result: Any) -> Any:
    """A result of collation, what a generator yields included."""
    return list(result) if hasattr(result, "__next__") else result


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "pad = 1\ndef collate(b):\n    return pad\nuse(collate)\npad = 2",
            "and `use(collate)` may read the new value later",
        ),
        ("def collate(b):\n    return pad\npad = 2", "`pad` is assigned only below"),
        (
            "pad = 1\ndef collate(b):\n    return pad\npad += 1",
            "`pad` is assigned again, and the object that captures `pad` is used later",
        ),
        (
            "pad = 1\ndef collate(b):\n    return pad\nfor pad in ds: use(pad)",
            "`pad` is assigned again, and the object that captures `pad` is used later",
        ),
        ("pad = 1\ndef collate(b):\n    return pad\ndel pad", "`pad` is deleted"),
        (
            "pad = 1\ndef collate(b):\n    return pad\n[pad := x for x in ds]",
            "`pad` is assigned again, and the object that captures `pad` is used later",
        ),
        (
            "pad = 1\ndef collate(b):\n    return pad\nwith ds as pad: use()",
            "`pad` is assigned again, and the object that captures `pad` is used later",
        ),
        ("pad = 1\ndef collate(b):\n    return pad\nimport math as pad", "`pad` is imported in one place"),
        ("if ds:\n    pad = 1\ndef collate(b):\n    return pad", "`pad` may have no value yet"),
        ("for x in ds:\n    pad = 1\ndef collate(b):\n    return pad", "`pad` may have no value yet"),
        ("try:\n    pad = 1\nexcept E:\n    pass\ndef collate(b):\n    return pad", "`pad` may have no value yet"),
        (
            "pad = 0\ndef collate(b):\n    return pad\ndef more():\n    nonlocal pad\n    pad = 2",
            "`pad` is rebound by an inner function",
        ),
        ("pad = 0\ndef collate(b):\n    nonlocal pad\n    pad = 2\n    return b", "the definition rebinds `pad`"),
        ("@cache\ndef collate(b):\n    return b", "the function has a decorator"),
        ("def collate(b):\n    return collate(b[1:]) + more", "the function calls itself"),
        ("class A: pass\ndef collate(b):\n    return A(b)", "the local class `A`"),
        ("def collate(b, a=[], /):\n    return b", "a positional-only parameter"),
        ("def collate(b, a=[]):\n    return b\ncollate(ds, 3)", "which breaks calls that pass `a` by position"),
        ("def collate(b):\n    return b\ncollate.pad = 3", "the code uses attributes of the function"),
        (
            "def collate(b):\n    return b\nuse(inspect.signature(collate))",
            "the project reads the function with `inspect`",
        ),
        ("def collate(b):\n    return ds, b\nPlain.transform = collate", "an attribute of a class stores the function"),
        ("def collate(b):\n    return ds, b\nclass A:\n    f = collate", "an attribute of a class stores the function"),
        (
            "def collate(b):\n    return ds, b\ntype('A', (), {'f': collate})",
            "an attribute of a class stores the function",
        ),
        (
            "def collate(b):\n    return locals()",
            "the rewrite would move this code to a place where `locals` has another result",
        ),
        (
            "def collate(b):\n    return b\nuse(locals())",
            "`locals` in the enclosing function may read the local names of the enclosing function",
        ),
        ("local = int\ndef collate(b: local):\n    return b", "the annotations use `local`"),
        ("def collate(b: Later):\n    return b", "the annotations use `Later`"),
        ("partial = ds\ndef collate(b):\n    return ds", "but `partial` may refer to another object here"),
        (
            "for n in ds:\n    def collate(b):\n        return n\n    all.append(DataLoader(ds, collate_fn=collate))",
            "may read the new value later",
        ),
        (
            "for n in ds:\n    if n:\n        use(kept)\n    def collate(b):\n        return n\n    kept = collate",
            "may read the new value later",
        ),
        (
            "for n in ds:\n    for m in ds:\n        def collate(b):\n            return n\n        ds.x = collate",
            "may read the new value later",
        ),
        ("try:\n    use()\nexcept E as e:\n    def collate(b):\n        return e", "`e` is a caught exception"),
    ],
)
def test_what_might_not_be_the_same_is_reported(body: str, reason: str) -> None:
    text = "def make(ds, more=1):\n" + textwrap.indent(body, "    ")
    text += "\n    return DataLoader(ds, collate_fn=collate)\n\n\nclass Later:\n    pass\n"
    assert reason in reported(text)


def test_private_names_of_a_class_stay_in_it() -> None:
    text = """
        class Maker:
            def loader(self, ds, other):
                def collate(batch):
                    return other.__pad
                return DataLoader(ds, collate_fn=collate)
    """
    assert "Python mangles the name `__pad` only inside the enclosing class" in reported(text)


@pytest.mark.parametrize(
    "text",
    [
        "def f(ds):\n    def key(x):\n        return x\n    return sorted(ds, key=key), DataLoader(ds)\n",
        "def f(ds):\n    def show(x):\n        return x\n    for x in DataLoader(ds):\n        show(x)\n",
        "def logged(f):\n    def wrapper(*args, **kwargs):\n        return f(*args, **kwargs)\n    return wrapper\n",
        "class A(Dataset):\n    def __getitem__(self, i):\n        def load(i):\n            return i\n"
        "        return load(i)\n",
        "def f(ds):\n    global collate\n    def collate(b):\n        return b\n"
        "    return DataLoader(ds, collate_fn=collate)\n",
    ],
    ids=["key", "called", "decorator", "in a method", "global"],
)
def test_functions_that_no_worker_needs_are_not_mentioned(text: str) -> None:
    after, findings = migrate(text)
    assert (after, findings) == (HEADER + text, [])


def test_a_name_that_is_read_before_it_has_a_value_stays() -> None:
    text = (
        "def f(ds):\n    use(collate)\n    def collate(b):\n        return b\n    DataLoader(ds, collate_fn=collate)\n"
    )
    assert "    use(collate)\n    collate = _collate\n" in migrate(text)[0]


def test_a_maker_may_be_called_in_another_module() -> None:
    maker = "def batcher(pad):\n    def inner(batch):\n        return batch, pad\n    return inner\n"
    after, _ = migrate(maker, other="from a import batcher\nuse(collate_fn=batcher(3))\n")
    assert "inner = partial(_inner, pad)" in after
    assert migrate(maker, other="from a import batcher\nbatcher(3)\n") == (HEADER + maker, [])


def test_names_are_unique_and_tell_where_they_come_from() -> None:
    text = """
        def train(ds):
            def collate(batch):
                return batch
            return DataLoader(ds, collate_fn=collate)

        def test(ds, pad):
            def collate(batch):
                return batch, pad
            return DataLoader(ds, collate_fn=collate)

        class Data:
            def __init__(self, ds):
                def list(batch):
                    return batch
                self.loader = DataLoader(ds, collate_fn=list)
    """
    after, _ = migrate(text)
    assert [line for line in after.splitlines() if line.startswith("def _")] == [
        "def _train_collate(batch):",
        "def _test_collate(pad, /, batch):",
        "def _list(batch):",
    ]
    assert "DataLoader(ds, collate_fn=_train_collate)" in after


def test_comments_and_docstrings_go_along() -> None:
    text = '''
        def make(ds):
            size = 2

            # Stack them.
            # Really.
            def collate(batch):
                """Stack.

                Every sample.
                """
                # first
                return [  # a list
                    batch,
                ]
                # last

            return DataLoader(ds, size, collate_fn=collate)
    '''
    after, _ = migrate(text)
    assert after == HEADER + textwrap.dedent(
        '''

        # Stack them.
        # Really.
        def collate(batch):
            """Stack.

            Every sample.
            """
            # first
            return [  # a list
                batch,
            ]
            # last


        def make(ds):
            size = 2

            return DataLoader(ds, size, collate_fn=collate)
        '''
    )


def test_a_value_stands_before_parameters_on_lines_of_their_own() -> None:
    after, _ = migrate("""
        def make(samples, pad):
            def collate(
                batch,
                more=1,
            ):
                return sum(batch) + pad + more
            return DataLoader(samples, collate_fn=collate)
    """)
    assert "def _collate(\n    pad, /, batch,\n    more=1,\n):\n" in after


def test_a_star_import_elsewhere_does_not_get_new_names() -> None:
    text = (
        "def make(ds):\n    def collate(batch):\n        return batch\n    return DataLoader(ds, collate_fn=collate)\n"
    )
    after, _ = migrate(text, other="from a import *\n")
    assert "def _collate(batch):" in after and "collate_fn=_collate)" in after


def test_names_that_other_files_set_are_not_free() -> None:
    text = "def make(ds):\n    def collate(b):\n        return b\n    return DataLoader(ds, collate_fn=collate)\n"
    after, _ = migrate(text, other="import a\nsetattr(a, 'collate', 3)\na._collate = 4\n")
    assert "def _make_collate(b):" in after


def test_names_and_lines_stay_readable() -> None:
    outer = "test_that_batches_of_sentences_are_padded_to_the_same_length"
    body = "        return batch, padding_token, maximum_length, tokenizer_name, ignored_label, NUMBER\n"
    parameters = "padding_token, maximum_length, tokenizer_name, ignored_label, data"
    body = f"    def collate(batch):\n{body}    return DataLoader(data, collate_fn=collate)\n\n\n"
    text = "".join(f"def {outer}_{n}({parameters}):\n{body.replace('NUMBER', str(n))}" for n in range(3))
    after, _ = migrate(text)
    moved = [line for line in after.splitlines() if line.startswith("def ") and "collate" in line]
    assert len(moved) == 3 and max(len(line.partition("(")[0]) for line in moved) <= 46
    assert "    collate = partial(\n        " in after
    assert after.index("import partial") < after.index("def ")


def test_an_output_transform_is_no_data_transform() -> None:
    text = "import torch\n\ndef get_sequence_transform(n):\n    def cut(x):\n        return x[:n]\n    return cut\n"
    rules = [RULES["CHP012"], RULES["CHP007"]]
    assert rewrite_text("a.py", text, Project({"a.py": text}), rules=rules) == (text, [])


def test_functions_that_say_the_same_become_one() -> None:
    function = '    def collate(batch):\n        """Leave as it is."""\n        return batch\n\n'
    loader = "    return DataLoader(data, collate_fn=collate, num_workers=2)\n"
    text = "".join(f"\n\ndef {name}(data):\n{function}{loader}" for name in ("train", "evaluate"))
    after, _ = migrate(f"from torch.utils.data import DataLoader\n{text}")
    assert after.count("def ") == 3 and after.count("def collate(batch):") == 1
    assert "def " not in after.partition("def train(data):")[2].replace("def evaluate(data):", "")


def test_functions_of_one_name_that_say_something_else_stay_two() -> None:
    text = "".join(
        f"\n\ndef {name}(data):\n    def collate(batch):\n        return batch[{number}]\n\n"
        "    return DataLoader(data, collate_fn=collate, num_workers=2)\n"
        for number, name in enumerate(("train", "evaluate"))
    )
    after, _ = migrate(f"from torch.utils.data import DataLoader\n{text}")
    assert "def _train_collate(batch):" in after and "def _evaluate_collate(batch):" in after


@pytest.mark.parametrize(
    "asking",
    [
        "isinstance(f, partial)",
        "hasattr(f, 'func')",
        "getattr(f, 'keywords', None)",
        "isinstance(\n    getattr(f, 'g'), (tuple, functools.partial)\n)",
        "type(f) is partial",
        "f.__class__ in (partial, int)",
    ],
)
def test_a_partial_takes_no_place_where_the_project_tells_partials(asking: str) -> None:
    local = (
        "def make(samples{}):\n    def collate(b):\n        return b{}\n"
        "    return DataLoader(samples, 2, collate_fn=collate)\n"
    )
    other = f"import functools\nfrom functools import partial\ndef unwrapped(f):\n    return {asking}\n"
    assert "checks for `partial` objects" in reported(local.format(", k", ", k"), other=other)
    assert "collate_fn=collate)" in migrate(local.format("", ""), other=other)[0]
    calling = "from functools import partial\nadd = partial(isinstance, 3), isinstance(4, int), partial(max, 2)\n"
    assert "partial(_collate, k)" in migrate(local.format(", k", ", k"), other=calling)[0]


@pytest.mark.parametrize("brought", ["def partial(x):\n    return x\n", "from other_helpers import partial\n"])
def test_a_partial_that_a_star_import_brings_is_not_that_of_functools(brought: str) -> None:
    text = """
        from functools import partial
        from helpers import *
        def make(samples, k):
            def collate(b):
                return b, k
            return DataLoader(samples, 2, collate_fn=collate)
    """
    assert "`partial` already means something else" in reported(text, helpers=brought)
    assert "partial(_collate, k)" in migrate(text, helpers="from functools import partial\n")[0]


@pytest.mark.parametrize(
    ("other", "looks"),
    [
        ("names = {'__name__': '__main__'}", False),
        ("names = {'a': 1,\n    '__name__' : '__main__',\n}", False),
        ("for one in 'a', '__name__': print(getattr(f, one))", True),
        ("if one == '__name__': print(getattr(f, one))", True),
        ("names = {'__name__'}", True),
        ("vars(f)['__name__']", True),
        ("f.__dict__['__code__']", True),
        ("attrgetter('__qualname__')", True),
    ],
)
def test_a_key_of_a_dictionary_reads_no_name_of_a_function(other: str, looks: bool) -> None:
    text = """
        def make(samples):
            def collate(b):
                return b
            return DataLoader(samples, 2, collate_fn=collate)
    """
    _, (found,) = migrate(text, other=other)
    assert (
        (found.status is FindingStatus.REPORT)
        == looks
        == ("reads an attribute of functions such as `__name__`" in found.message)
    )


def test_imports_that_a_function_on_one_line_needs_get_their_own_lines() -> None:
    after, _ = migrate(
        """
        def build(data):
            import math
            def collate(batch): return [math.floor(x) for x in batch]
            return DataLoader(data, collate_fn=collate, num_workers=2)
        """
    )
    assert "def collate(batch):\n    import math\n    return [math.floor(x) for x in batch]\n" in after


def test_a_docstring_of_a_function_on_one_line_stays_above_its_imports() -> None:
    after, _ = migrate(
        """
        def build(data):
            import math
            def collate(batch): "Round."; return [math.floor(x) for x in batch]
            return DataLoader(data, collate_fn=collate, num_workers=2)
        """
    )
    expected = 'def collate(batch):\n    "Round."\n    import math\n    return [math.floor(x) for x in batch]\n'
    assert expected in after


@pytest.mark.parametrize("name", ["__collate", "_"])
def test_a_function_whose_name_python_mangles_in_a_class_stays(name: str) -> None:
    after, _ = migrate(
        f"""
        class Trainer:
            def build(self, data):
                def {name}(batch): return batch
                return DataLoader(data, collate_fn={name}, num_workers=2)
        """
    )
    assert f"    def {name}(batch): return batch\n" in after

"""Lambdas and local dataset classes that worker processes need: what becomes of them, and what is left alone."""

from __future__ import annotations

import pickle
import re
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import support
from support import RULES, imported

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import Finding, FindingStatus
from chirp_migrate.syntax.project import Project

HEADER = "from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler\n"
EVERYTHING = "CHP006 CHP007 CHP012"


def migrate(text: str, codes: str = "CHP007", **others: str) -> tuple[str, list[Finding]]:
    """Apply rules to a module that knows loaders and datasets."""
    after, findings = support.migrate(codes, HEADER + textwrap.dedent(text), **others)
    return after.removeprefix(HEADER), findings


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    return partial(imported, folder=tmp_path, monkeypatch=monkeypatch)


#: Sources of modules with a function ``make(samples)``; what it gives has a ``collate_fn`` or is one.
SHAPES = {
    "no capture": "make = lambda samples: DataLoader(samples, collate_fn=lambda batch: sum(batch) + 1)",
    "parameters of every kind": """
        def make(samples, pad=3):
            return DataLoader(samples, collate_fn=lambda b, /, a=1, *rest, c=[pad], d="x": (b, a, rest, c, d, pad))
    """,
    "any keyword": """
        def make(samples):
            return DataLoader(samples, collate_fn=lambda batch, **more: (batch, more))
    """,
    "any keyword, and a value": """
        def make(samples, pad=3):
            return DataLoader(samples, collate_fn=lambda batch, /, **more: (batch, more, pad))
    """,
    "no parameter of its own": """
        def make(samples, pad=3):
            return DataLoader(samples, collate_fn=lambda *batch: (batch, pad))
    """,
    "several lines": """
        def make(samples, pad=3):
            return DataLoader(
                samples,
                collate_fn=lambda batch: [  # the samples
                    (x, "no (parenthesis")
                    for x in batch
                    if x != pad  # not these
                ],
            )
    """,
    "several lines, strings": '''
        def make(samples, pad=3):
            return DataLoader(samples, collate_fn=lambda batch: (  # (text)
                """a
              b""" + str(batch)
                + f"""
                    {pad}"""
            ))
    ''',
    "operators over lines": """
        def make(samples, pad=3):
            return DataLoader(samples, collate_fn=lambda batch:
                              # the sum
                              sum(batch)
                              + pad)
    """,
    "tabs": """
        def make(samples, pad=3):
        \treturn DataLoader(samples,
        \t\tcollate_fn=lambda batch: sum(batch) +
        \t\t\tpad)
    """,
    "imports of the function": """
        def make(samples):
            import os.path
            from math import sqrt as root
            return DataLoader(samples, collate_fn=lambda batch: (root(sum(batch)), os.path.join("a", "b")))
    """,
    "returned by a maker": """
        def make_collate(pad):
            return lambda batch: sum(batch) + pad

        def make(samples):
            return DataLoader(samples, collate_fn=make_collate(3))
    """,
    "a default": """
        def make(samples, collate_fn=lambda batch: sum(batch) + 1):
            return DataLoader(samples, collate_fn=collate_fn)
    """,
    "a default of another name": """
        def make(samples, merge=lambda batch: sum(batch) + 1):
            return DataLoader(samples, collate_fn=merge)
    """,
    "partial": """
        from functools import partial

        def make(samples):
            return DataLoader(samples, collate_fn=partial(lambda batch, pad: sum(batch) + pad, pad=2))
    """,
    "functools.partial": """
        import functools

        def make(samples, pad=1):
            return DataLoader(samples, collate_fn=lambda batch: sum(batch) + pad)
    """,
    "dict": """
        def make(samples, pad=1):
            options = {"collate_fn": lambda batch: sum(batch) + pad}
            return DataLoader(samples, **options)
    """,
    "entry": """
        def make(samples, pad=1):
            options = {}
            options["collate_fn"] = lambda batch: sum(batch) + pad
            return DataLoader(samples, **options)
    """,
    "variable of the module": """
        merge = lambda batch: sum(batch) + 1

        def make(samples):
            return DataLoader(samples, collate_fn=merge)
    """,
    "two": """
        def make(samples, flag=True):
            first = DataLoader(samples, collate_fn=lambda batch: sum(batch) + 1)
            return first if flag else DataLoader(samples, collate_fn=lambda batch: sum(batch) + 2)
    """,
    "an attribute that is called": """
        class Maker:
            def __init__(self):
                self.merge = sum

            def loader(self, samples):
                return DataLoader(samples, collate_fn=lambda batch: self.merge(batch))

        def make(samples):
            return Maker().loader(samples)
    """,
    "walrus and generator": """
        def make(samples):
            return DataLoader(samples, collate_fn=lambda batch: ((n := len(batch)), n + 1, [(yield n)]) and None)
    """,
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_function_does_what_the_lambda_did_and_can_be_pickled(
    shape: str, newline: str, load: Callable[[str], ModuleType]
) -> None:
    before = (HEADER + textwrap.dedent(SHAPES[shape])).replace("\n", newline)
    after, findings = rewrite_text("a.py", before, Project({"a.py": before}), rules=[RULES["CHP007"]])
    assert {one.status for one in findings} == {FindingStatus.REWRITE}
    assert newline == "\n" or "\n" not in after.replace("\r\n", "")
    assert after.count("#") == before.count("#")
    old, new = (load(text).make([1, 2, 3]) for text in (before, after))
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(old.collate_fn)
    copy = pickle.loads(pickle.dumps(new.collate_fn))
    for batch in ([1, 2], [3]):
        results = [one(batch) for one in (old.collate_fn, new.collate_fn, copy)]
        results = [list(one) if hasattr(one, "__next__") else one for one in results]
        assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def pad(b): return b\ndef f(ds):\n    return g(ds, collate_fn=lambda b: pad(b))", "collate_fn=_collate_fn)"),
        ("def f(ds, pad):\n    return g(ds, collate_fn=lambda b: pad(b))", "collate_fn=partial(_collate_fn, pad))"),
        ("def f(ds):\n    return g(ds, collate_fn=lambda b: list(b))", "collate_fn=_collate_fn)"),
        ("import u\nx = g(ds, collate_fn=lambda b: u.pad(b))", "collate_fn=_collate_fn)"),
        ("import torch.nn.functional as F\nx = g(ds, collate_fn=lambda b: F.relu(b))", "collate_fn=_collate_fn)"),
        (
            "def f(ds, tok):\n    return g(ds, collate_fn=lambda b: tok.pad(b))",
            "collate_fn=partial(_collate_fn, tok))",
        ),
        ("x = g(ds, collate_fn=lambda b: pad(b))\ndef pad(b): return b", "collate_fn=_collate_fn)"),
        ("pad = 1\ndef f(ds):\n    return g(ds, collate_fn=lambda b: pad(b))\npad = 2", "collate_fn=_collate_fn)"),
        ("from torchvision import transforms as T\nt = T.Lambda(lambda x: x / 2)", "t = T.Lambda(_scale)"),
        ("from torchvision import transforms as T\nt = T.Compose([lambda x: x / 2, T.x])", "T.Compose([_scale, T.x])"),
        ("class D:\n    transform: object = lambda x: x + 1", "transform: object = _add_1"),
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass D:\n"
            "    transform: object = field(default=lambda x: x + 1)",
            "field(default=_add_1)",
        ),
        ("class D(Dataset): pass\nd = D([1], lambda x: x + 1)", "d = D([1], _add_1)"),
        ("class D(Dataset):\n    def __init__(self, x, f): pass\nd = D([1], lambda x: x + 1)", "d = D([1], _add_1)"),
        ("ds.dataset.transform = lambda x: x + 1", "ds.dataset.transform = _add_1"),
    ],
)
def test_where_lambdas_go(before: str, after: str) -> None:
    migrated, findings = migrate(before + "\n")
    assert after in migrated
    assert [one.status for one in findings] == [FindingStatus.REWRITE]


@pytest.mark.parametrize(
    "called", ["float(b)", "pad(b)", "torch.stack(b)", "tools.pad(b)", "self.pad(b)", "Pad(b)", "a.b.c.pad(b)"]
)
def test_a_lambda_that_only_calls_becomes_a_function_of_its_own(called: str) -> None:
    """Neither a class, which code may make an object of, nor a function that other code may replace."""
    text = "def pad(b): pass\nclass Pad: pass\n"
    text += f"class A:\n    def pad(self, b): pass\n    def f(self, ds): return g(ds, collate_fn=lambda b: {called})\n"
    migrated, findings = migrate(text)
    assert re.search(rf"def _collate_fn\((self, )?b\):\n +return {re.escape(called)}\n", migrated)
    assert [one.status for one in findings] == [FindingStatus.REWRITE]


def test_no_caller_can_give_another_value_for_a_bound_one(load: Callable[[str], ModuleType]) -> None:
    before = HEADER + "def make(data, k):\n    return DataLoader(data, collate_fn=lambda b: b * k)\n"
    after = HEADER + migrate(before.removeprefix(HEADER))[0]
    assert "lambda" not in after
    for text in (before, after):
        collate = load(text).make([1], 4).collate_fn
        assert collate(2) == collate(b=2) == 8
        with pytest.raises(TypeError):
            collate(2, k=3)


def test_modules_that_may_do_something_are_imported_where_they_were() -> None:
    text = "def f(ds):\n    import {}\n    size = 3\n    return g(ds, collate_fn=lambda b: {}.dumps(b) + '')\n"
    for name, count in (("json", 1), ("tools", 2)):
        assert migrate(text.format(name, name))[0].count(f"import {name}") == count


@pytest.mark.parametrize(
    "text",
    [
        "names = sorted(['a'], key=lambda name: name[1:])\ncollate = 1\n",
        "class D(Dataset):\n    __len__ = lambda self: 3\n    __getitem__ = lambda self, i: i\n",
        "import pandas as pd\ndef f(df, collate):\n    return df.apply(lambda row: row + 1)\n",
        "from keras.layers import Lambda\nlayer = Lambda(lambda x: x + 1)\n",
        "options = {'transform': lambda x: x + 1}\nprint(options['transform'](1))\n",
    ],
    ids=["key", "methods", "pandas", "keras", "dict that is no arguments"],
)
def test_lambdas_that_no_worker_needs_are_not_mentioned(text: str) -> None:
    assert migrate(text) == (text, [])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "[DataLoader(ds, collate_fn=lambda b: (b, n)) for n in ds]",
            "after the comprehension reads only the last value of its variable `n`",
        ),
        (
            "DataLoader(ds, collate_fn=lambda b: super().f(b))",
            "the rewrite would move this code to a place where `super` has another result",
        ),
    ],
)
def test_what_might_not_be_the_same_is_reported(body: str, reason: str) -> None:
    text = f"def make(ds):\n    return {body}\n"
    after, findings = migrate(text)
    assert after == text
    assert [one.status for one in findings] == [FindingStatus.REPORT]
    assert reason in findings[0].message


def test_a_method_name_is_free_in_related_classes() -> None:
    text = """
        class Base(Dataset):
            def __init__(self, k):
                self.scale = lambda x: x * self.k
    """
    other = "from a import Base\nclass More(Base):\n    def _scale(self):\n        return 3\n"
    after, _ = migrate(text, other=other)
    assert "self.scale = self._base_scale" in after
    assert "self.scale = self._scale" in migrate(text, other=other.replace("(Base)", "(Other)"))[0]
    assert "self.scale = self._base_scale" in migrate(text, other="thing._scale = 3\n")[0]


@pytest.mark.parametrize(
    ("setting", "moves"),
    [
        ("setattr(self, name, 1)", False),
        ("setattr(self, 'name', 1)", True),
        ("object.__setattr__(self, name, 1)", False),
        ("super().__setattr__(name, 1)", False),
        ("self.__dict__.update(name)", False),
        ("vars(self)[name] = 1", False),
        ("self.__dict__ = name", False),
        ("setattr(args, name, 1)", True),
    ],
)
def test_an_attribute_with_a_computed_name_may_hide_a_method(setting: str, moves: bool) -> None:
    def text(owner: str) -> str:
        return f"class {owner}:\n    def fill(self, name, args):\n        {setting}\n"

    own = text("Data(Dataset)") + "    def f(self):\n        self.scale = lambda x: x * self.k\n"
    assert ("self.scale = self._scale" in migrate(own)[0]) is moves
    plain = own.replace(setting, "pass")
    assert "self.scale = self._scale" in migrate(plain, other=text("Other"))[0]
    assert ("lambda" not in migrate(plain, other="from a import Data\n" + text("More(Data)"))[0]) is moves
    assert ("lambda" not in migrate(plain, other=f"def fill(self, name, args):\n    {setting}\n")[0]) is moves


@pytest.mark.parametrize(
    ("owner", "moves"),
    [("type(ds)", False), ("Data", False), ("ds.__class__", False), ("ds", False), ("self", True), ("Data(ds)", True)],
)
def test_a_lambda_with_bound_values_is_no_method(owner: str, moves: bool) -> None:
    text = f"class A(Dataset):\n    def f(self, ds, k):\n        {owner}.transform = lambda ds, x: x * k\n"
    assert ("partial(_scale, k)" in migrate(text)[0]) is moves
    text = "def f(ds, k):\n    setattr(ds, 'transform', lambda self: k)\n    ds.transform = lambda x: x * k\n"
    assert "transform = partial(_scale, k)" in migrate(text)[0]


def test_a_default_that_other_code_sets_is_bound_where_it_stood() -> None:
    text = "SIZE = 3\ndef f(ds):\n    return g(ds, collate_fn=lambda b, *, size=SIZE: (b, size))\n"
    assert "def _collate_fn(b, *, size=SIZE):" in migrate(text)[0]
    setting = ["a.SIZE = 4", "setattr(a, 'SIZE', 4)", "vars(a)['SIZE'] = 4", "a.__dict__.update(X=1, SIZE=4)"]
    for other in [*setting, "for a.SIZE in (3, 4): use()", "with use() as a.SIZE: use()"]:
        assert "partial(_collate_fn, size=SIZE)" in migrate(text, other=other)[0]


def test_a_default_that_other_code_sets_has_no_place_in_the_body_of_a_class() -> None:
    text = "SIZE = 3\nclass A(Dataset):\n    loader = DataLoader([1], collate_fn=lambda b, size=SIZE: (b, size))\n"
    assert "collate_fn=_collate_fn)" in migrate(text)[0]
    after, (finding,) = migrate(text, other="a.SIZE = 4")
    assert after == text and "Python binds a lambda in the body of a class as a method" in finding.message


#: Sources of modules with a function ``make()`` that gives an object of a class made inside a function.
CLASSES = {
    "iterable": """
        def make(n=3):
            class Numbers(IterableDataset):
                def __iter__(self):
                    return iter(range(n))
            return Numbers()
    """,
    "imports": """
        def make(n=3):
            import math
            from os import path as p
            class Roots(Dataset):
                '''Roots.'''
                def __len__(self): return math.floor(n)
                def __getitem__(self, i):
                    # the root
                    if i >= n:
                        raise IndexError
                    return math.sqrt(i), p.join("a", str(i))
            return Roots()
    """,
    "base of the project": """
        class Base(Dataset):
            def __init__(self, n):
                self.n = n

        def make(factor=2):
            class Scaled(Base):
                def __init__(self, n, *rest):
                    super(Scaled, self).__init__(n)

                def __getitem__(self, i):
                    if i >= self.n:
                        raise IndexError
                    text = '''x
            y'''
                    return i * factor, text
            return Scaled(3)
    """,
    "helper": """
        def make(factor=2):
            def scale(x):
                return x * factor
            class Scaled(Dataset):
                def __getitem__(self, i):
                    if i > 3:
                        raise IndexError
                    return scale(i)
            return Scaled()
    """,
    "its name taken": """
        class Data:
            pass

        def make(n=2):
            class Data(Dataset):
                def __getitem__(self, i):
                    if i > n:
                        raise IndexError
                    return Data.__mro__[-1], i
            return Data()
    """,
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("shape", CLASSES)
def test_local_classes_give_the_same_samples_and_can_be_pickled(
    shape: str, newline: str, load: Callable[[str], ModuleType]
) -> None:
    before = (HEADER + textwrap.dedent(CLASSES[shape])).replace("\n", newline)
    rules = [RULES[code] for code in EVERYTHING.split()]
    after, findings = rewrite_text("a.py", before, Project({"a.py": before}), rules=rules)
    assert {one.status for one in findings} == {FindingStatus.REWRITE}
    assert newline == "\n" or "\n" not in after.replace("\r\n", "")
    again, _ = rewrite_text("a.py", after, Project({"a.py": after}), rules=rules)
    assert again == after
    old, new = (load(text).make() for text in (before, after))
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(old)
    assert list(old) == list(new) == list(pickle.loads(pickle.dumps(new)))


def test_classes_and_functions_of_one_name_stay_apart() -> None:
    text = "".join(
        f"def {name}(n):\n"
        "    class D(Dataset):\n        def __len__(self): return n\n"
        f"    def collate(b): return b, '{name}', n\n"
        f"    return DataLoader(D(), collate_fn=collate), DataLoader(D(), collate_fn=lambda b: (b, n, '{name}'))\n"
        for name in ("one", "two")
    )
    after, findings = migrate(text, EVERYTHING)
    assert {one.status for one in findings} == {FindingStatus.REWRITE}
    defined = [line.partition("(")[0] for line in after.splitlines() if line.startswith(("class", "def _"))]
    assert len(defined) == len(set(defined)) == 6


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "def f():\n    from b import Base\n    class D(Base): pass\n    return D()\n",
            "the base class `Base` is a local name of the function",
        ),
        ("def f(n):\n    class D(Dataset):\n        size = n\n    return D()\n", "uses the local name `n`"),
        (
            "class B(Dataset):\n    def __init__(self, x): self.x = x\n"
            "def f(n):\n    class D(B):\n        def __len__(self): return n\n    return D(3)\n",
            "would add an `__init__`, which would hide the constructor of the base class",
        ),
        (
            "def f(n):\n    class D(Dataset):\n        @property\n        def n(self): return n\n    return D()\n",
            "used where `self` is not available",
        ),
        (
            "def f(n):\n    class D(Dataset):\n        def __init__(self): self.n = n\n    return D()\n",
            "the body of `__init__` is on the line of its `def`",
        ),
        (
            "def f(n):\n    class D(Dataset):\n        def __len__(self): return n\n    return [D() for n in (1, 2)]\n",
            "a constructor call cannot read the variable `n` that the class captures",
        ),
        (
            "def f(n):\n    class D(Dataset):\n        def __len__(self): return n\n    return D(3)\n",
            "code passes arguments to the inherited `__init__`, which the new `__init__` of the class would not accept",
        ),
        (
            "def f(n):\n    class D(Dataset):\n        pass\n    return D\n",
            "the rule needs code that only calls the class",
        ),
    ],
)
def test_local_classes_that_cannot_move_are_reported(text: str, reason: str) -> None:
    after, findings = migrate(text, "CHP006", b="from torch.utils.data import Dataset\nclass Base(Dataset): pass\n")
    assert after == text
    assert [one.status for one in findings] == [FindingStatus.REPORT]
    assert reason in findings[0].message


def test_lambdas_that_say_the_same_become_one_function() -> None:
    text = "from torch.utils.data import DataLoader\n" + "".join(
        f"\n\ndef {name}(data):\n    return DataLoader(data, collate_fn=lambda b: tuple(b[0]), num_workers=2)\n"
        for name in ("train", "evaluate")
    )
    after, findings = migrate(text, "CHP007")
    assert after.count("def _collate_fn(b):") == 1 and after.count("collate_fn=_collate_fn") == 2
    assert len({one.message for one in findings}) == 1


def test_a_default_that_is_given_by_name_only_is_bound_by_its_name(
    load: Callable[[str], ModuleType],
) -> None:
    before = (
        "from torch.utils.data import DataLoader\n\n\n"
        "def run(data, scale):\n"
        "    return DataLoader(data, num_workers=2, collate_fn=lambda b, *, k=scale + 1, j=3: (b, k, j))\n"
    )
    after, _ = migrate(before)
    assert "lambda" not in after
    collate = load(after).run([1], 4).collate_fn
    assert collate([1]) == ([1], 5, 3) and collate([1], k=2, j=0) == ([1], 2, 0)


@pytest.mark.parametrize(("name", "is_shared"), [("_collate_fn", True), ("first", False)])
def test_only_a_function_that_an_earlier_run_made_is_shared(name: str, is_shared: bool) -> None:
    """Other code may replace a function of another name."""
    text = (
        f"from torch.utils.data import DataLoader\n\n\ndef {name}(b):\n    return tuple(b[0])\n\n\n"
        "def train(data):\n    return DataLoader(data, collate_fn=lambda b: tuple(b[0]), num_workers=2)\n"
    )
    after = migrate(text, "CHP007")[0]
    assert after.count("return tuple(b[0])") == (1 if is_shared else 2)
    assert "collate_fn=_collate_fn," in after


def test_a_function_that_may_be_another_one_later_is_not_shared() -> None:
    text = (
        "def _collate_fn(b):\n    return tuple(b[0])\n\n\ndef train(data):\n"
        "    return DataLoader(data, collate_fn=lambda b: tuple(b[0]), num_workers=2)\n"
    )
    after = migrate(text, other="import a\n\na._collate_fn = len\n")[0]
    assert after.count("return tuple(b[0])") == 2 and "collate_fn=_collate_fn," not in after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("g or (lambda b: len(b) + 1)", "g or _collate_fn"),
        ("g or ( (lambda b: len(b) + 1) )", "g or _collate_fn"),
        ("(lambda b: len(b) + 1)if g is None else g", "_collate_fn if g is None else g"),
        ("g or (lambda b: len(b)\n    + 1)", "g or _collate_fn"),
        ("g or (lambda b: len(b) + 1  # why\n)", "g or (_collate_fn  # why\n)"),
        ("g or (  # why\n    lambda b: len(b) + 1)", "g or (  # why\n    _collate_fn)"),
        ("g or (\n    (lambda b: len(b) + 1)\n)", "g or (\n    _collate_fn\n)"),
        ("g or (lambda b: len(b))", "g or _collate_fn"),
        ("g or (lambda b: len(b) + pad)", "g or partial(_collate_fn, pad)"),
    ],
)
def test_brackets_that_only_the_lambda_needed_go_with_it(before: str, after: str) -> None:
    body = "def make(d, pad, g=None):\n    return DataLoader(d, collate_fn={})\n"
    text, _ = migrate(body.format(before))
    assert f"collate_fn={after})" in text, text
    compile(text, "after.py", "exec")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("x", "_identity"),
        ("torch.Tensor(x)", "_to_tensor"),
        ("torch.from_numpy(x)", "_to_tensor"),
        ("np.asarray(x)", "_to_array"),
        ("float(x)", "_to_float"),
        ("x.to(torch.float32)", "_to_float32"),
        ("F.pad(x.unsqueeze(0), (4, 4), mode='reflect').data.squeeze()", "_pad_reflect"),
        ("x.unsqueeze(0)", "_unsqueeze"),
        ("x.permute(2, 0, 1)", "_permute"),
        ("T.Resize(3)(x)", "_resize"),
        ("T.RandomCrop(3)(x)", "_random_crop"),
        ("x / 255", "_scale"),
        ("x + 1", "_add_1"),
        ("x - 0.5", "_shift"),
        ("x - MEAN", "_subtract_mean"),
        ("config.noise + x", "_add_noise"),
        ("1 - x", "_invert"),
        ("[y - MEAN for y in x]", "_subtract_mean_each"),
        ("x - x.mean()", "_subtract"),
        ("x ** 2", "_square"),
        ("x % 10", "_take_remainder"),
        ("tokenizer(x)", "_apply_tokenizer"),
        ("Image.filter(x)", "_filter"),
        ("x * 2 - 1", "_rescale"),
        ("(x - 1) / 3", "_standardize"),
        ("x['image']", "_get_image"),
        ("x.image", "_get_image"),
        ("x[:3]", "_select"),
        ("x > 0.5", "_threshold"),
        ("x.repeat(3, 1) if x.dim() == 2 else x", "_repeat"),
        ("[T.ToTensor()(one) for one in x]", "_to_tensor_each"),
        ("(x, 1)", "_transform"),
    ],
)
def test_a_function_is_called_after_what_it_does(body: str, name: str) -> None:
    text = "import torch\nfrom torchvision import transforms as T\n"
    after, _ = migrate(
        f"{text}\n\ndef f(d):\n    transform = T.Compose([T.Lambda(lambda x: {body})])\n    return transform\n"
    )
    assert f"T.Lambda({name})" in after and f"def {name}(x):\n    return {body}\n" in after


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("transformations", "_transform"),
        ("train_transforms", "_train_transform"),
        ("augmentations", "_augment"),
        ("pipeline", "_process"),
        ("f", "_process"),
        ("fn", "_process"),
        ("target_transform", "_target_transform"),
        ("to_db", "_to_db"),
    ],
)
def test_a_function_that_does_much_is_called_after_its_role(variable: str, name: str) -> None:
    after, _ = migrate(
        f"from torchvision import transforms as T\n\n\ndef load(d):\n    {variable} = lambda x: (x, 1)\n"
        f"    return T.Compose([T.Lambda({variable})])\n"
    )
    assert f"{variable} = {name}\n" in after and f"def {name}(x):\n    return (x, 1)\n" in after


@pytest.mark.parametrize(("body", "name"), [("x", "_identity"), ("x + 0", "_to_pil")])
def test_a_function_that_does_nothing_is_not_called_after_a_variable(body: str, name: str) -> None:
    steps = "".join(f"    to_{one} = T.Lambda(d) if d else lambda x: {body}\n" for one in ("pil", "tensor"))
    head = "from torchvision import transforms as T\n\n\ndef load(d):\n"
    after, _ = migrate(f"{head}{steps}    return T.Compose([to_pil, to_tensor])\n")
    assert re.findall(r"def (_\w+)", after) == [name] and "lambda" not in after


def test_functions_that_do_the_same_in_another_way_have_names_of_their_own() -> None:
    bodies = ("lambda x: x / 2", "lambda x: x / 3", "lambda image: image / 4", "lambda x: torch.Tensor(x)")
    steps = ", ".join(f"T.Lambda({body})" for body in bodies)
    head = "import torch\nfrom torchvision import transforms as T\n\n\ndef build(d):\n"
    text = f"{head}    t = T.Compose([{steps}])\n    return t\n"
    after, _ = migrate(text)
    assert re.findall(r"def (\w+)\(\w+\):\n    return", after) == [
        "_scale",
        "_build_scale",
        "_scale_image",
        "_to_tensor",
    ]


@pytest.mark.parametrize(
    ("variable", "name"), [("normalize = T.Lambda({})", "_normalize"), ("to_db = {}\nt = T.Compose([to_db])", "_to_db")]
)
def test_a_name_that_says_something_is_kept(variable: str, name: str) -> None:
    code = textwrap.indent(variable.format("lambda x: x / 2"), "    ")
    after, _ = migrate(f"from torchvision import transforms as T\n\n\ndef f(d):\n{code}\n    return d\n")
    assert f"def {name}(x):" in after


def test_functions_of_nested_lambdas_have_plain_names(load: Callable[[str], ModuleType]) -> None:
    before = (
        "from torch.utils.data import DataLoader\n\n\nclass Maker:\n    def __init__(self, data, a):\n"
        "        self.collate_fn = lambda p: lambda q: lambda r: lambda b: [x * p + q - r + a for x in b]\n"
        "        self.loader = DataLoader(data, batch_size=2, collate_fn=self.collate_fn(2)(3)(4))\n"
    )
    after, _ = support.migrate("CHP007", before)
    names = ["_collate_fn", "_collate_fn_for_r", "_collate_fn_for_q", "_collate_fn_for_p"]
    assert re.findall(r"^def (\w+)", after, re.MULTILINE) == names
    collates = [load(text).Maker([1, 2], 5).loader.collate_fn([1, 2]) for text in (before, after)]
    assert collates[0] == collates[1]


COLLATE = "def collate_tts(batch, r, pad=0):\n    return batch, r, pad\n\n\n"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("collate_tts(b, r=r)", "partial(collate_tts, r=r)"),
        ("collate_tts(b, r)", "partial(collate_tts, r=r)"),
        ("collate_tts(b, r, pad=1)", "partial(collate_tts, r=r, pad=1)"),
        ("collate_tts(b, 3)", "partial(collate_tts, r=3)"),
        # The first argument is bound, too: a value of another kind than a constant or one of the function is not.
        ("collate_tts(b, r=r + 1)", "partial(_collate_fn, r)"),
        ("collate_tts(b, r=args.r)", "partial(_collate_fn, args)"),
        ("collate_tts(b, *r)", "partial(_collate_fn, r)"),
        ("collate_tts(batch=b, r=r)", "partial(_collate_fn, r)"),
        ("collate_tts(b)", "_collate_fn"),
    ],
)
def test_a_function_of_the_project_is_used_through_partial(
    body: str, value: str, load: Callable[[str], ModuleType]
) -> None:
    text = f"{HEADER}{COLLATE}def make(data, r, args=None):\n    return DataLoader(data, collate_fn=lambda b: {body})\n"
    after, _ = support.migrate("CHP007", text)
    assert f"collate_fn={value})" in after
    if "args.r" not in body and "*r" not in body and body != "collate_tts(b)":
        made = [load(one).make([1, 2], 4).collate_fn for one in (text, after)]
        assert made[0]([1]) == pickle.loads(pickle.dumps(made[1]))([1])


@pytest.mark.parametrize("parameters", ["batch, r, /", "batch, *rest"])
def test_an_argument_that_cannot_be_given_by_name_is_not_bound(parameters: str) -> None:
    text = (
        f"def collate({parameters}):\n    return batch\n\n\ndef make(d):\n    return DataLoader(d, collate_fn={{}})\n"
    )
    assert "collate_fn=_collate_fn)" in migrate(text.format("lambda b: collate(b, 3)"))[0]


def test_a_first_argument_is_bound_by_its_position() -> None:
    text = "def collate(r, batch):\n    return batch\n\n\ndef make(d, r):\n    return DataLoader(d, collate_fn={})\n"
    text = text.format("lambda b: collate(r, b)")
    assert "collate_fn=partial(collate, r))" in migrate(text)[0]


@pytest.mark.parametrize(
    ("change", "other"),
    [
        (lambda text: text, "from unittest.mock import patch\n\nwith patch('a.collate_tts'):\n    pass\n"),
        (lambda text: text, "import a\n\na.collate_tts = len\n"),
        (lambda text: text.replace("def collate_tts", "@cached\ndef collate_tts"), ""),
        (lambda text: text.replace(COLLATE, "class collate_tts:\n    def __init__(self, batch, r): pass\n\n\n"), ""),
        (lambda text: text + "\n\ndef collate_tts(batch, r): return r\n", ""),
        (lambda text: text, "import a\n\na.make(d, 3).collate_fn(b=[1])\n"),
    ],
)
def test_what_may_be_another_function_is_wrapped(change: Callable[[str], str], other: str) -> None:
    text = f"{COLLATE}def make(data, r):\n    return DataLoader(data, collate_fn=lambda b: collate_tts(b, r=r))\n"
    after, _ = migrate(change(text), other=other)
    assert "partial(_collate_fn, r)" in after


IDENTITY = (
    "\nidentity = lambda x: x\n\n\n"
    "class Clips(Dataset):\n    def __init__(self, x, transform=identity):\n        self.t = transform\n"
)


def test_a_lambda_of_the_module_becomes_a_function_of_its_name(load: Callable[[str], ModuleType]) -> None:
    after, (finding,) = migrate(IDENTITY)
    assert after == IDENTITY.replace("identity = lambda x: x\n", "\ndef identity(x):\n    return x\n", 1)
    assert finding.message == "lambda `identity` cannot be pickled for workers; replaced by the function `identity`"
    assert pickle.loads(pickle.dumps(load(HEADER + after).Clips(1).t))(7) == 7


@pytest.mark.parametrize("comment", ["", "  # noqa", "  # noqa: E731"])
def test_blank_lines_separate_the_function_from_the_code_around_it(comment: str) -> None:
    after, _ = migrate(f"SIZE = 1\nidentity = lambda x: x{comment}\nSIZE = 3\n{IDENTITY.partition('x: x')[2]}")
    assert after.startswith("SIZE = 1\n\n\ndef identity(x):\n    return x\n\n\nSIZE = 3\n")


def test_a_line_with_a_form_feed_counts_as_a_blank_line() -> None:
    after, _ = migrate("SIZE = 1\n\n\f\ndef load(data):\n    return DataLoader(data, collate_fn=lambda b: b[0])\n")
    assert after.startswith("SIZE = 1\n\n\f\ndef _collate_fn(b):\n    return b[0]\n\n\ndef load(data):\n")


@pytest.mark.parametrize("other", ["", "print(f.__name__)\n"])
def test_a_default_transform_of_another_file_is_found_and_named(other: str) -> None:
    data = (
        "from torch.utils.data import DataLoader, Dataset\nfrom a import identity\n\n\nclass Clips(Dataset):\n"
        "    def __init__(self, x, transform=identity):\n        self.t = transform\n\n"
        "    def __getitem__(self, i):\n        return self.t(i)\n\n\n"
        "loader = DataLoader(Clips([1]), num_workers=2)\n"
    )
    before = "identity = lambda x, k=2: x\n"
    after, (finding,) = support.migrate("CHP007", before, data=data, other=other)
    if other:  # it reads names of functions
        assert after == before and "lambda in `Clips.t` cannot be pickled" in finding.message
    else:
        assert after == "def identity(x, k=2):\n    return x\n" and "`identity`" in finding.message


@pytest.mark.parametrize(
    "other",
    [
        "import a\n\na.identity = len\n",
        "from unittest.mock import patch\n\npatch('a.identity', len)\n",
        "import a\n\na.identity = len\nprint 'a file of an old Python'\n",
    ],
)
def test_a_name_that_is_replaced_keeps_its_value_apart(other: str) -> None:
    after, _ = migrate(IDENTITY, other=other)
    assert "def _identity(x):" in after and "identity = _identity\n" in after


@pytest.mark.parametrize(
    "change",
    [
        "made.collate_fn.calls = 5",
        "setattr(made.collate_fn, 'calls', 5)",
        "made.dataset.transform.calls += 1",
        "made.dataset.kept.calls = 5",
    ],
)
@pytest.mark.parametrize("form", ["lambda", "def"])
def test_a_function_of_each_call_stays_where_attributes_are_set_on_it(change: str, form: str) -> None:
    """Whatever it is called: by its own name, by what it is given for, or by the attribute that keeps it."""
    defined = "step = lambda b: b * 2" if form == "lambda" else "def step(b):\n        return b * 2"
    text = (
        "class Data(Dataset):\n    def __init__(self, x, transform, other):\n        self.x = x\n"
        "        self.transform = transform\n        self.kept = other\n\n    def __len__(self):\n        return 3\n\n"
        "    def __getitem__(self, i):\n        return self.transform(self.kept(self.x[i]))\n\n\n"
        f"def build(x):\n    {defined}\n    return DataLoader(Data(x, step, step), collate_fn=step)\n\n\n"
        f"def main(made):\n    {change}\n"
    )

    def moves(text: str) -> bool:
        return "return b * 2" in migrate(text, "CHP007 CHP012")[0].partition("def build")[0]

    assert not moves(text) and moves(text.replace(change, "made.model.calls = 5"))


def test_a_lambda_that_is_looked_at_stays() -> None:
    assert migrate(IDENTITY, other="print(f.__name__)\n")[0] == IDENTITY


def test_lines_of_a_lambda_move_with_it_however_they_are_indented() -> None:
    text = (
        "from torchvision import transforms as T\n\n\ndef f(d):\n    t = T.Compose([\n"
        "    \tT.Lambda(lambda x: pad(x,\n    \t\t\t\t\t(4, 4))),\n    ])\n    return t\n"
    )
    after, _ = migrate(text)
    continued = re.search(r"    return pad\(x,\n( +)\(4, 4\)\)\n", after)
    assert continued is not None and 4 < len(continued[1]) < 32


def test_lines_of_a_function_take_the_indentation_of_their_new_place() -> None:
    lines = ["        def collate(b):", "            b = (1,", "\t\t\t2)", "            return b"]
    text = "\n".join(["def f(d):", *lines, "        return DataLoader(d, collate_fn=collate)", ""])
    after = migrate(text, "CHP012")[0]
    moved = after.partition("\n\ndef f(d):")[0].strip().splitlines()
    assert moved == ["def collate(b):", "    b = (1,", " " * 16 + "2)", "    return b"]


@pytest.mark.parametrize(
    ("body", "moves"),
    [
        ("with open(k) as n:\n    LOADER", True),
        ("with open(k) as m:\n    n = m\nLOADER", True),
        ("with ds as m:\n    n = m\nLOADER", False),
        ("if (n := k):\n    return ds\nelse:\n    LOADER", True),
        ("if ds and (n := k):\n    LOADER", True),
        ("if ds and (n := k):\n    return ds\nLOADER", False),
        ("if ds or (n := k):\n    LOADER", False),
        ("match ds:\n    case [n]:\n        LOADER", True),
        ("match ds:\n    case [n]:\n        pass\nLOADER", False),
        ("try:\n    print(ds)\nfinally:\n    n = 1\nLOADER", True),
        ("try:\n    n = k()\nexcept OSError:\n    print(ds)\nLOADER", False),
    ],
)
def test_a_value_is_bound_only_if_each_way_to_the_lambda_sets_it(body: str, moves: bool) -> None:
    loader = "return DataLoader(ds, collate_fn=lambda b: (b, n))"
    text = f"def make(ds, k):\n{textwrap.indent(body.replace('LOADER', loader), '    ')}\n"
    after, (finding,) = migrate(text)
    assert ("collate_fn=partial(_collate_fn, n)" in after) is moves
    assert moves or "`n` may have no value yet when the program reaches the code that captures it" in finding.message

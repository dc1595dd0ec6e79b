"""Dataset classes inside functions: what keeps one from being made when the module is imported."""

from __future__ import annotations

import textwrap

import pytest
import support

HEADER = (
    "import functools\nimport torch\nfrom torch.utils.data import Dataset, Dataset as Patched\n"
    "import pkg.base\nimport other\nfrom .base import Base\nSIZE = 3\n"
)


def migrate(body: str, base: str = "Dataset", top: str = "", end: str = "") -> tuple[str, list[str]]:
    """A function with a local dataset class after the rule, and the reasons of what was only reported."""
    inner = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    text = f"{HEADER}{top}\n\ndef make(n, path):\n    class Local({base}):\n{inner}\n    return Local(){end}\n"
    package = {"__init__": "", "base": "from torch.utils.data import Dataset\nclass Base(Dataset): ...\n"}
    package["main"] = "import a, other\na.SIZE += 2\na.Patched = 1\nother.SIZE = 5\n"
    after, findings = support.migrate("CHP006", text, path="pkg/a.py", **package)
    return after, support.reports(findings)


@pytest.mark.parametrize("base", ["Dataset", "torch.utils.data.Dataset", "Base"])
def test_a_class_whose_base_is_there_moves(base: str) -> None:
    after, reasons = migrate('"""Doc."""\nsize = 3\n\ndef __len__(self, n=(1, None)):\n    return n', base)
    assert not reasons and f"\nclass Local({base}):" in after


@pytest.mark.parametrize(
    ("bases", "moves"),
    [
        ("class Middle(Dataset): size = 3\nclass Base(Middle): ...", True),
        ("class Plain:\n    def f(self): ...\nclass Base(Dataset, Plain): ...", True),
        ("class Middle(Dataset):\n    def __init__(self): self.n = 1\nclass Base(Middle): ...", False),
        ("class Middle(Dataset):\n    __init__ = made\nclass Base(Middle): ...", False),
        ("class Base(Dataset): ...\nBase.__init__ = made", False),
        ("class Base(Dataset, made()): ...", False),
        ("class Base(TensorDataset): ...", False),
    ],
)
def test_a_base_without_a_constructor_needs_none_called(bases: str, moves: bool) -> None:
    text = (
        "from torch.utils.data import DataLoader\nfrom base import Base\n\n\ndef make(n):\n    class Local(Base):\n"
        "        def __len__(self):\n            return n\n\n    return DataLoader(Local())\n"
    )
    head = "from torch.utils.data import Dataset, TensorDataset\n"
    after, findings = support.migrate("CHP006", text, base=head + bases)
    assert ("\nclass Local(Base):" in after) == moves
    refused = "would add an `__init__`, which would hide the constructor of the base class"
    assert moves or refused in findings[0].message


@pytest.mark.parametrize(
    ("body", "base", "reason"),
    [
        ("def __len__(self):\n    return 1", "pkg.base.Base", "may not be defined yet"),
        ("data = torch.load('x')\ndef __len__(self):\n    return 1", "Dataset", "contains code other than methods"),
        ("print('made')\ndef __len__(self):\n    return 1", "Dataset", "contains code other than methods"),
        ("def __len__(self, n=torch.rand(1)):\n    return 1", "Dataset", "the default of `n`"),
        ("def __len__(self, n=LATE):\n    return 1", "Dataset", "the default of `n`"),
        ("@late\ndef __len__(self):\n    return 1", "Dataset", "defined below the new place"),
        ("@functools.lru_cache\ndef __len__(self):\n    return 1", "Dataset", "a decorator in the class"),
        ("size = other.SIZE\ndef __len__(self):\n    return 1", "Dataset", "contains code other than methods"),
        ("size = SIZE\ndef __len__(self):\n    return 1", "Dataset", "contains code other than methods"),
        ("def __len__(self):\n    return 1", "Patched", "other code assigns `Patched`"),
        ("def __len__(self) -> Late:\n    return 1", "Dataset", "annotations use `Late`"),
    ],
)
def test_what_would_be_evaluated_on_import_is_left(body: str, base: str, reason: str) -> None:
    end = "\n\nLATE = 3\n\ndef late(f): return f\n\nclass Late: ..."
    after, reasons = migrate(body, base, end=end)
    assert "    class Local(" in after and len(reasons) == 1 and reason in reasons[0]


@pytest.mark.parametrize(
    ("body", "base", "top", "reason"),
    [
        ("size = 3", "Maybe", "if n:\n    from torch.utils.data import Dataset as Maybe", "`Maybe` may not be defined"),
        ("def __len__(self):\n    return 1", "Dataset", "def __getattr__(name): ...", "the module's `__getattr__`"),
        ("size = SIZE", "Dataset", "globals().update(SIZE=3)", "contains code other than methods"),
        ("def __len__(self) -> note(1):\n    return 1", "Dataset", "", "the annotations call a function"),
        (
            "def f(self):\n    setattr(type(self), 'n', 1)",
            "Dataset",
            "",
            "`type(self)` in the class depends on the class",
        ),
    ],
)
def test_what_looks_at_a_class_or_module_keeps_it_where_it_is(body: str, base: str, top: str, reason: str) -> None:
    after, reasons = migrate(body, base, top)
    assert "    class Local(" in after and len(reasons) == 1 and reason in reasons[0]


def test_a_constructor_keeps_what_it_is_given_above_its_first_statement() -> None:
    constructor = """
        def __init__(self, k):
            # Of this object alone.
            @functools.lru_cache
            def double(i):
                return i * k
            self.double = double

        def __getitem__(self, i):
            return self.double(i) + n
    """
    after, reasons = migrate(constructor)
    kept = "        self._captured_n = n\n        # Of this object alone.\n        @functools.lru_cache\n"
    assert not reasons and kept in after


def test_what_moves_is_no_test() -> None:
    text = (
        "from torch.utils.data import DataLoader, Dataset\n\n\ndef test_f(n):\n    class TestData(Dataset):\n"
        "        def __len__(self):\n            return n\n\n    def test_batch(batch):\n        return batch\n\n"
        "    return DataLoader(TestData(), collate_fn=test_batch)\n"
    )
    after = support.migrate("CHP006 CHP012", text, path="tests/test_a.py")[0]
    assert "\nclass _TestData(Dataset):" in after and "\ndef _test_batch(batch):" in after


@pytest.mark.parametrize("base", ["Base", "Dataset"])
def test_what_is_captured_does_not_meet_attributes_of_others(base: str) -> None:
    body = "def __init__(self):\n    super().__init__()\n\ndef __len__(self):\n    return n"
    assert "self._captured_n = n" in migrate(body, base)[0]


@pytest.mark.parametrize(("given", "taken"), [("size, /", "size, /, *, n"), ("size, /, *, k=1", "size, /, *, k=1, n")])
def test_what_is_captured_is_given_by_name(given: str, taken: str) -> None:
    body = f"def __init__(self, {given}):\n    self.size = size\n\ndef __len__(self):\n    return self.size * n"
    after, reasons = migrate(body)
    assert not reasons and f"    def __init__(self, {taken}):\n" in after

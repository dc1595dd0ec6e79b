"""Label scans: what counts as one, and what is left alone and why."""

from __future__ import annotations

import re
import textwrap

import pytest
import support

from chirp_migrate.plans.plan import Finding


def migrate(text: str, **others: str) -> tuple[str, list[Finding]]:
    """Apply the rule to a module beside others; its import is left out."""
    after, findings = support.migrate("CHP011", text, **others)
    return re.sub(r"from chirpid_patch import (iterate|read)_labels\n", "", after), findings


def expression(text: str, header: str = "def f(dataset, idx, other, n):") -> tuple[str, list[str]]:
    """An expression in a function after the rule, and the messages of what was only reported."""
    after, findings = migrate(f"{header}\n    return {text}\n")
    return after.partition("return ")[2].strip(), support.reports(findings)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[dataset[i][1] for i in idx]", "read_labels(dataset, idx)"),
        ("[ ( dataset [ i ] ) [ 1 ] for i in ( idx ) ]", "read_labels(dataset, ( idx ))"),
        ("[dataset[i][1].item() for i in idx[:n]]", "[label.item() for label in iterate_labels(dataset, idx[:n])]"),
        ("[dataset[idx[j]][1] for j in range(n)]", "read_labels(dataset, (idx[j] for j in range(n)))"),
        ("[dataset[-i - 1][1] for i in idx]", "read_labels(dataset, (-i - 1 for i in idx))"),
        ("[dataset[i][1] for i in (j for j in idx)]", "read_labels(dataset, (j for j in idx))"),
        ("[dataset[i][1] + label for i in idx]", "[label_2 + label for label_2 in iterate_labels(dataset, idx)]"),
        ("[y for _, y in dataset]", "read_labels(dataset)"),
        ("[y for (x, y) in dataset]", "read_labels(dataset)"),
        ("[(y, y + 1) for [x, y] in dataset]", "[(y, y + 1) for y in iterate_labels(dataset)]"),
        ("tuple(y for _, y in dataset)", "tuple(iterate_labels(dataset))"),
        ("set((y.item() for _, y in dataset))", "set((y.item() for y in iterate_labels(dataset)))"),
        ("sorted((y for _, y in dataset), reverse=True)", "sorted(iterate_labels(dataset), reverse=True)"),
        ("{y for _, y in dataset}", "{y for y in iterate_labels(dataset)}"),
        (
            "[(n, int(y)) for n, (_, y) in enumerate(dataset, 1)]",
            "[(n, int(y)) for n, y in enumerate(iterate_labels(dataset), 1)]",
        ),
        (
            "[n * dataset[i][1] for n, i in enumerate(idx)]",
            "[n * label for n, label in enumerate(iterate_labels(dataset, idx))]",
        ),
        (
            "{s[1].item(): None for s in dataset}",
            "{label.item(): None for label in iterate_labels(dataset, unpack=False)}",
        ),
        ("[y for n, (_, y) in enumerate(dataset)]", "[y for n, y in enumerate(iterate_labels(dataset))]"),
        ("lambda: [dataset[i][1] for i in idx]", "lambda: read_labels(dataset, idx)"),
        ("[*[dataset[i][1] for i in idx], 0]", "[*read_labels(dataset, idx), 0]"),
        ("[[dataset[i][1] for i in fold] for fold in idx]", "[read_labels(dataset, fold) for fold in idx]"),
    ],
)
def test_one_meaning_in_many_spellings(before: str, after: str) -> None:
    assert expression(before) == (after, [])


@pytest.mark.parametrize(
    "text",
    [
        "[dataset[i][0] for i in idx]",
        "[dataset[i][1:] for i in idx]",
        "[dataset[i][-1] for i in idx]",
        "[dataset[i][i] for i in idx]",
        "[dataset[i, 0][1] for i in idx]",
        "[dataset[i:][1] for i in idx]",
        "[dataset[i] for i in idx]",
        "[dataset[n][1] for i in idx]",
        "[dataset[i][1] - dataset[i][0] for i in idx]",
        "[(dataset[i], dataset[i][1]) for i in idx]",
        "[dataset[dataset][1] for dataset in idx]",
        "[other[i][1] for i in idx]",
        "[idx[i][1] for i in range(n)]",
        "[other()[i][1] for i in idx]",
        "[dataset[i][0][1] for i in idx]",
        "[other[i][0][1] for i in idx]",
        "[x for x, y in dataset]",
        "[(x, y) for x, y in dataset]",
        "[0 for _, _ in dataset]",
        "[0 for x, y in dataset]",
        "[y for _, y, _ in dataset]",
        "[y for _, *y in dataset]",
        "[y for _, y in zip(idx, dataset)]",
        "[y for _, y in dataset.items()]",
        "[y for y in dataset]",
        "[s for s in dataset]",
        "[y for n, (_, y) in other(dataset)]",
        "[y for y, (_, y) in enumerate(dataset)]",
        "[y async for _, y in dataset]",
    ],
)
def test_what_is_no_label_scan_is_not_spoken_of(text: str) -> None:
    assert expression(text, "async def f(dataset, idx, other, n):") == (text, [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[dataset[i][1] for i in idx if i]", "has an `if`"),
        ("[i for i in idx if dataset[i][1] == n]", "has an `if`"),
        ("[y for d in idx for _, y in dataset]", "more than one `for`"),
        ("[(i, dataset[i][1]) for i in idx]", "the code uses `i` not only to read the label"),
        ("[(dataset[i][1], dataset[i][1]) for i in idx]", "read more than once"),
        ("[n and dataset[i][1] for i in idx]", "a condition decides"),
        ("[0 < n < dataset[i][1] for i in idx]", "a condition decides"),
        ("[dataset[i][1] if n else 0 for i in idx]", "a condition decides"),
        ("[other(dataset[i][1]) for i in idx]", "`other(…)` may have side effects"),
        ("[other.pop(dataset[i][1]) for i in idx]", "`other.pop(…)` may have side effects"),
        ("[int(y) + random.random() for _, y in dataset]", "`random.random(…)` may have side effects"),
        ("[utils.item(y) for _, y in dataset]", "`utils.item(…)` may have side effects"),
        ("[(lambda: y) for _, y in dataset]", "may have side effects"),
        ("[(last := y) for _, y in dataset]", "may have side effects"),
        ("[(await y) for _, y in dataset]", "may have side effects"),
        ("[dataset[next(other)][1] for i in idx if i]", None),
        ("[dataset[other(i)][1] for i in idx]", "`other(…)` may have side effects"),
        (
            "[dataset[i][1] for i in await idx]",
            "the expression that computes the indices contains `await`, `yield` or `:=`",
        ),
        ("(dataset[i][1] for i in idx)", "lazily"),
        ("next(dataset[i][1] for i in idx)", "lazily"),
        ("any(y for _, y in dataset)", "lazily"),
        ("max((y for _, y in dataset), key=other)", None),
        ("max((y for _, y in dataset), key=other())", "lazily"),
        ("zip((y for _, y in dataset), idx)", "lazily"),
    ],
)
def test_a_scan_that_cannot_be_moved_says_why(text: str, reason: str | None) -> None:
    header = "import random\nimport utils\n\nasync def f(dataset, idx, other, n):"
    after, messages = expression(text, header)
    if reason is None:
        assert (after == text) == ("next(other)" in text) and not messages
    else:
        assert after == text and len(messages) == 1
        assert reason in messages[0] and "iterate_labels(dataset" in messages[0]


def test_shadowed_builtins_are_not_taken_for_what_they_are_called() -> None:
    shadowing = "def int(value):\n    return input(value)\n\ndef f(dataset):\n    return [int(y) for _, y in dataset]\n"
    after, (finding,) = migrate(shadowing)
    assert after == shadowing and "`int(…)` may have side effects" in finding.message
    counted = "def f(dataset, enumerate):\n    return [y for n, (_, y) in enumerate(dataset)]\n"
    assert migrate(counted) == (counted, [])


def test_a_name_that_is_taken_is_not_taken_over() -> None:
    local = "def f(dataset, read_labels):\n    return [y for _, y in dataset]\n"
    defined = "def read_labels(dataset):\n    return [y for _, y in dataset]\n"
    for text, where in ((local, "in the surrounding code"), (defined, "in this file")):
        after, (finding,) = migrate(text)
        assert after == text and f"already means something else {where}" in finding.message
    elsewhere = "def g(read_labels): ...\n\ndef f(dataset):\n    return [y for _, y in dataset]\n"
    assert "return read_labels(dataset" in migrate(elsewhere)[0]


def test_the_dataset_must_not_change_while_its_indices_are_made() -> None:
    text = """
        class Engine:
            def labels(self):
                return [self.dataset[i][1] for i in self.prepare()]

        def f(dataset, prepare):
            return [dataset[i][1] for i in prepare()]

        def g(prepare):
            return [the_dataset[i][1] for i in prepare()]

        def h(prepare):
            global a_dataset
            a_dataset = prepare()
            return [a_dataset[i][1] for i in prepare()]

        def k(rng):
            return [the_dataset[i][1] for i in np.random.permutation(len(the_dataset))]
    """
    after, findings = migrate("import numpy as np\n" + textwrap.dedent(text))
    assert "read_labels(dataset, prepare())" in after
    assert "read_labels(the_dataset, np.random.permutation(len(the_dataset)))" in after
    reports = support.reports(findings)
    assert ["`self.prepare(…)` computes the indices" in one for one in reports] == [True, False, False]
    assert all("computes the indices and might assign another object to the dataset's name" in one for one in reports)


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("from torch.utils.data import TensorDataset\nthings = TensorDataset(x, y)", "things"),
        ("import torch.utils.data as tud\nthings = tud.Subset(x, y)", "things"),
        ("from torch.utils.data import random_split\nthings, rest = random_split(x, y)", "rest"),
        ("from torchvision.datasets import MNIST\nthings = MNIST('.')", "things"),
        ("from data import SegmentDataset\nthings = SegmentDataset(x)", "things"),
        ("from data import Base, SegmentDataset\nthings = Base(x)", "things"),
        ("import data\nthings: data.SegmentDataset = load()", "things"),
        ("things: 'Dataset' = load()", "things"),
        (
            "from typing import Optional\nfrom data import SegmentDataset\nthings: Optional[SegmentDataset] = load()",
            "things",
        ),
        ("from torch.utils.data import DataLoader\nDataLoader(dataset=things)", "things"),
        ("from torch.utils.data import DataLoader, Subset\nDataLoader(Subset(things, x))", "things"),
        ("train_set = load()", "train_set"),
        ("valset = load()", "valset"),
        ("DATASET = load()", "DATASET"),
        ("import cfg", "cfg.train_dataset"),
    ],
)
def test_a_dataset_is_known_by_facts(setting: str, name: str) -> None:
    data = """
        from torch.utils.data import Dataset
        class Base(Dataset[int]): ...
        class SegmentDataset(Base): ...
    """
    after, _ = migrate(f"{setting}\nlabels = [y for _, y in {name}]\n", data=data)
    assert f"labels = read_labels({name})" in after


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("things = load()", "things"),
        ("dataset = [(0, 1), (2, 3)]", "dataset"),
        ("dataset = {}", "dataset"),
        ("import numpy as np\ntrain_set = np.zeros((3, 2))", "train_set"),
        ("import pandas as pd\ndataset = pd.read_csv('x.csv')", "dataset"),
        ("from typing import List\ndataset: List[int] = load()", "dataset"),
        ("label_set = load()", "label_set"),
        ("from data import NoDataset\nthings = NoDataset()", "things"),
        ("from data import DataLoader\nDataLoader(things)", "things"),
    ],
)
def test_what_is_plainly_something_else_is_left_alone(setting: str, name: str) -> None:
    text = f"{setting}\nlabels = [{name}[i][1] for i in range(3)]\n"
    assert migrate(text, data="class NoDataset: ...\nclass DataLoader: ...\n") == (text, [])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("for i in idx:\n    sink.append(dataset[i][1])\nreturn sink", "`sink` is not created right before"),
        (
            "out = []\nfor i in (k := idx):\n    out.append(dataset[i][1])\nreturn out",
            "the expression that computes the indices contains `await`, `yield` or `:=`",
        ),
        (
            "if n:\n    sink = []\nfor _, y in dataset:\n    sink.append(y)\nreturn sink",
            "`sink` is not created right before",
        ),
        ("for _, y in dataset:\n    self.found[y] = 1", "`self.found` is not created right before"),
        ("for _, y in dataset:\n    idx += [y]", "`idx` is not created right before"),
        ("out = []\nfor _, y in dataset:\n    out.append(sink(y))\nreturn out", "`sink(…)` may have side effects"),
        ("out = []\nfor _, y in dataset:\n    if sink():\n        out.append(y)\nreturn out", "`sink(…)` may have"),
        (
            "out = []\nfor i in idx:\n    out.append((i, dataset[i][1]))\nreturn out",
            "uses `i` not only to read the label",
        ),
        (
            "out = []\nfor i in idx:\n    _, y = dataset[i]\n    out.append((i, y))\nreturn out",
            "uses `i` not only to read the label",
        ),
        (
            "out = {}\nfor i in idx:\n    if i > 1:\n        out[0] = dataset[i][1]\nreturn out",
            "uses `i` not only to read the label",
        ),
        ("out = {}\nfor i in idx:\n    if n:\n        out[0] = dataset[i][1]\nreturn out", "a condition decides"),
        ("out = []\nfor x, y in dataset:\n    out.append(y)\nreturn out, x", "`x` may be read after"),
        ("x = 0\nwhile x < 3:\n    out = []\n    for x, y in dataset:\n        out.append(y)", "`x` may be read after"),
        ("out = []\nfor x, y in dataset:\n    out.append(y)\nreturn lambda: x", "`x` may be read after"),
        ("out = []\nfor x, y in dataset:\n    out.append(y)\nreturn [x for x in x]", "`x` may be read after"),
        ("out = []\nfor x, y in dataset:\n    out.append(y)\nfor x in x:\n    n(x)", "`x` may be read after"),
        ("out = []\nfor _, y in dataset:\n    dataset = y\n    out.append(y)", "the loop assigns `dataset`"),
        ("idx = [0]\nfor i in idx:\n    idx.append(dataset[i][1])\nreturn idx", "the loop changes `idx`"),
        ("self.ids = []\nfor i in self.ids:\n    self.ids.append(dataset[i][1])", "the loop changes `self.ids`"),
        (
            "out = []\nwith sink():\n    for _, y in dataset:\n        out.append(y)\nreturn out",
            "a `with` that may suppress errors surrounds the loop",
        ),
        (
            "out = []\ntry:\n    for _, y in dataset:\n        out.append(y)\nfinally:\n    n(out)",
            "a `try` surrounds the loop, so code may read incomplete data",
        ),
    ],
)
def test_a_loop_whose_early_reading_could_be_noticed_is_left_alone(body: str, reason: str) -> None:
    text = "def f(self, dataset, idx, n, sink):\n" + textwrap.indent(body, "    ") + "\n"
    after, (finding,) = migrate(text)
    assert after == text and reason in finding.message


@pytest.mark.parametrize(
    "body",
    [
        "for _, y in dataset:\n    train(y)",
        "for _, y in dataset:\n    print(y)\n    break",
        "out = []\nfor _, y in dataset:\n    out.append(y)\n    if y:\n        break\nreturn out",
        "for _, y in dataset:\n    yield y",
        "out = []\nfor _, y in dataset:\n    out.append(y)\nelse:\n    n()",
        "out = []\nfor i in idx:\n    x, y = dataset[i]\n    out.append((x, y))\nreturn out",
        "out = []\nfor i in idx:\n    s = dataset[i]\n    out.append((s, s[1]))\nreturn out",
        "out = []\nfor i in idx:\n    _, y = dataset[i]\n    out.append((y, dataset[i]))\nreturn out",
        "for _, y in dataset:\n    del sink[y]",
        "for i in idx:\n    dataset[i][1] = 3",
        "for i in idx:\n    dataset[i][1] += 3",
        "for i in idx:\n    (sink, dataset[i][1]) = 3, 4",
    ],
)
def test_a_loop_that_does_more_than_collect_is_not_spoken_of(body: str) -> None:
    text = "def f(self, dataset, idx, n, sink):\n" + textwrap.indent(body, "    ") + "\n"
    assert migrate(text) == (text, [])


def test_a_count_may_look_up_what_it_counted() -> None:
    text = """
        def f(dataset, table):
            counts = {}
            for _, y in dataset:
                counts[int(y)] = counts.get(int(y), 0) + 1
            names = {}
            for _, y in dataset:
                names.setdefault(y.item(), []).append(table.get(y))
            return counts, names
    """
    after, findings = migrate(text)
    assert after == textwrap.dedent(text).replace("for _, y in dataset", "for y in iterate_labels(dataset)", 1)
    assert "`table.get(…)` may have side effects" in findings[-1].message


def test_names_of_a_module_may_be_read_elsewhere() -> None:
    text = "from data import dataset\nlabels = []\nfor i in range(3):\n    labels.append(dataset[i][1])\n"
    assert "for label in iterate_labels(dataset, range(3)):" in migrate(text)[0]
    after, (finding,) = migrate(text, b="from a import i\n")
    assert after == text and "another module may import `i`" in finding.message


def test_the_body_of_a_class_is_no_scope_of_its_comprehensions() -> None:
    text = "class A:\n    dataset = load()\n    labels = [dataset[i][1] for i in range(3)]\n"
    assert migrate(text) == (text, [])


def test_comments_and_layout_survive() -> None:
    text = """
        def f(dataset, idx):
            out = []   # made here
            # all of them
            for i in idx:  # every one

                label = dataset[i][1]
                out.append(label.item());  out.append(0)   # twice
            return [
                # as they are
                dataset[i][1]
                for i in idx
            ]
    """
    after, _ = migrate(text)
    assert after == textwrap.dedent(
        """
        def f(dataset, idx):
            out = []   # made here
            # all of them
            for label in iterate_labels(dataset, idx):  # every one

                out.append(label.item());  out.append(0)   # twice
            return [
                # as they are
                label
                for label in iterate_labels(dataset, idx)
            ]
        """
    )


@pytest.mark.parametrize(
    "text",
    [
        "[(READS, dataset[i][1]) for i in idx]",
        "[STATE['reads'] + dataset[i][1] for i in idx]",
        "sum(len(LOG) + int(dataset[i][1]) for i in idx)",
        "[(weights[5], dataset[i][1]) for i in idx]",
        "{len(LOG): dataset[i][1] for i in idx}",
        "[max(idx[0], dataset[i][1]) for i in idx]",
    ],
)
def test_what_is_evaluated_before_a_sample_is_read_stays_before_it(text: str) -> None:
    header = (
        "READS, STATE, LOG = 0, {'reads': 0}, []\n\ndef read():\n    global READS\n    READS += 1\n\n"
        "def f(dataset, idx, weights):"
    )
    after, (message,) = expression(text, header)
    assert after.endswith(text) and "is evaluated before the sample is read" in message


@pytest.mark.parametrize(
    "text",
    [
        "[(n, dataset[i][1]) for i in idx]",
        "[n * dataset[i][1] for i in idx]",
        "[other[dataset[i][1]] for i in idx]",
        "[max(n, dataset[i][1], len(other)) for i in idx]",
        "[dataset[i][1] + other[0] for i in idx]",
    ],
)
def test_names_and_what_comes_after_a_sample_is_read_are_in_no_way(text: str) -> None:
    after, messages = expression(text)
    assert "iterate_labels(dataset, idx)" in after and not messages


def test_statements_before_a_sample_is_read_stay_before_it() -> None:
    text = "def f(dataset, idx):\n    n, out, log = 0, [], []\n    for i in idx:\n        {}\n"
    text += "        out.append(dataset[i][1])\n    return n, out, log\n"
    assert "in iterate_labels(dataset, idx)" in migrate(text.format("n += 1"))[0]
    after, (finding,) = migrate(text.format("log.append(STATE['reads'])"))
    assert (
        after == text.format("log.append(STATE['reads'])")
        and "is evaluated before the sample is read" in finding.message
    )


@pytest.mark.parametrize("asked", ["locals()", "sorted(vars())", "dir()", "eval('i')"])
def test_a_name_that_a_loop_binds_may_be_read_by_its_spelling(asked: str) -> None:
    text = "def f(dataset):\n    out = []\n    for i in range(9):\n        out.append(dataset[i][1])\n    return {}\n"
    after, (finding,) = migrate(text.format(asked))
    assert after == text.format(asked) and "may be read after the loop" in finding.message
    assert migrate(text.format("out, vars(out)"))[0] != text.format("out, vars(out)")

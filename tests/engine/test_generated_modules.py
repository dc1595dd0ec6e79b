"""Modules made up around ``DataLoader`` calls: what was migrated compiles, settles, and builds the same loader."""

from __future__ import annotations

import importlib.util
import itertools
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from chirp_migrate.edits.apply_hunks import text_with_hunks
from chirp_migrate.engine.rewrite_file import rewrite_in_hunks, rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project

PREAMBLE = '''\
"""A backend made up for a test."""
{imports}
import torch
from torch.utils.data import RandomSampler, SequentialSampler, BatchSampler, TensorDataset

data = TensorDataset(torch.arange(11.0), torch.arange(11) % 3)
config = {{"batch_size": 4, "workers": 0}}


class Settings:
    shuffle = True
    workers = 0


args = Settings()
'''

IMPORTS = st.sampled_from(
    [
        ("from torch.utils.data import DataLoader", "DataLoader"),
        ("from torch.utils.data import DataLoader as DL", "DL"),
        ("import torch.utils.data as tud", "tud.DataLoader"),
        ("from torch.utils import data as d", "d.DataLoader"),
        ("import torch.utils.data", "torch.utils.data.DataLoader"),
        ("from torch.utils.data import *", "DataLoader"),
        ("try:\n    from torch.utils.data import DataLoader\nexcept ImportError:\n    DataLoader = None", "DataLoader"),
    ]
)

#: Ways to give a collate function: statements in front of the call, and the expression.
COLLATE = st.sampled_from(
    [
        ([], "lambda batch: len(batch)"),
        (["scale = 3"], "lambda batch: scale * len(batch)"),
        (["def collate(batch):", "    # how many", "    return len(batch)"], "collate"),
        (["scale = 3", "def collate(batch):", "    return scale * len(batch)"], "collate"),
        (["scale = 3", "def collate(batch, shift=1):", '    """Doc."""', "    return scale + shift"], "collate"),
        (["collate = lambda batch: [x for x, _ in batch]"], "collate"),
    ]
)


SAMPLERS = ["RandomSampler(data, replacement=True, num_samples=7)", "None", "config.get('sampler')"]
SHAPES = [
    "return CALL",
    "loader = CALL\nreturn loader",
    "return [CALL for _ in range(1)][0]",
    "return {'train': CALL}['train']",
    "return (CALL if data else None)",
]


@st.composite
def arguments(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Statements in front of the call, and its arguments behind the dataset."""
    before: list[str] = []
    given_: dict[str, str] = {}
    if draw(st.booleans()):
        given_["batch_sampler"] = "BatchSampler(SequentialSampler(data), 3, drop_last=False)"
    else:
        given_["batch_size"] = draw(st.sampled_from(["1", "4", "config['batch_size']", "2 + 1"]))
        order = draw(st.sampled_from(["", "shuffle=True", "shuffle=False", "shuffle=args.shuffle", "sampler"]))
        if order == "sampler":
            given_["sampler"] = draw(st.sampled_from(SAMPLERS))
        elif order:
            given_["shuffle"] = order.partition("=")[2]
        if draw(st.booleans()):
            given_["drop_last"] = draw(st.sampled_from(["True", "False"]))
    knobs = {
        "num_workers": ["0", "args.workers", "config.get('workers', 0)"],
        "pin_memory": ["False", "torch.cuda.is_available()"],
        "generator": ["torch.Generator().manual_seed(5)"],
        "timeout": ["0"],
    }
    for name, values in knobs.items():
        if draw(st.booleans()):
            given_[name] = draw(st.sampled_from(values))
    if draw(st.booleans()):
        before, given_["collate_fn"] = draw(COLLATE)
    names = draw(st.permutations(list(given_)))
    written = [f"{name}={given_[name]}" for name in names]
    if "batch_size" in given_ and draw(st.booleans()):
        written = [given_["batch_size"], *(f"{name}={given_[name]}" for name in names if name != "batch_size")]
    if len(written) > 1 and draw(st.booleans()):
        last = written.pop()
        if "=" in last.split("(")[0].split("[")[0]:
            name, _, value = last.partition("=")
            before = [*before, f"options = {{{name!r}: {value}}}"]
            written.append("**options")
        else:
            written.append(last)
    return before, written


@st.composite
def modules(draw: st.DrawFn) -> str:
    """A module whose ``make()`` gives the loader."""
    imports, callee = draw(IMPORTS)
    before, written = draw(arguments())
    comment = draw(st.sampled_from(["", "  # why", "  # x, y)"]))
    if draw(st.booleans()):
        inner = ",\n            ".join(written)
        call = (
            f"{callee}(\n            data,{comment}\n            {inner}{draw(st.sampled_from(['', ',']))}\n        )"
        )
    else:
        space, comma = draw(st.sampled_from(["", " "])), draw(st.sampled_from([", ", " , "]))
        call = f"{callee}{space}(data{comma}{', '.join(written)})"
    shape = draw(st.sampled_from(SHAPES)).replace("CALL", call)
    lines = [line if line.startswith("        ") else f"        {line}" for line in (*before, *shape.split("\n"))]
    body = "\n".join(
        ["class Trainer:", "    def make(self):", *lines, "", "", "def make():", "    return Trainer().make()"]
    )
    return f"{PREAMBLE.format(imports=imports)}\n\n{body}\n"


_numbers = itertools.count()


def load(text: str, folder: Path) -> Any:
    """The text as a module that pickled functions can be found in."""
    name = f"made_up_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def described(module: Any) -> tuple[Any, ...]:
    """What the loader is given about data, and the batches of two epochs."""
    loader = module.make()
    assert isinstance(loader, DataLoader) and loader.dataset is module.data
    torch.manual_seed(7)
    batches = [[_plain(batch) for batch in loader] for _ in range(2)]
    left = torch.rand(1).item()
    sampler = None if loader.batch_sampler is not None and loader.batch_size is None else type(loader.sampler)
    return loader.batch_size, sampler, loader.drop_last, loader.timeout, len(loader), batches, left


def _plain(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.dtype, batch.tolist()
    return [_plain(one) for one in batch] if isinstance(batch, list | tuple) else batch


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=modules(), newline=st.sampled_from(["\n", "\r\n"]))
@pytest.mark.filterwarnings("ignore")
def test_a_made_up_module_builds_the_same_loader(text: str, newline: str, tmp_path: Path) -> None:
    text = text.replace("\n", newline)
    after, findings = rewrite_text("a.py", text, Project({"a.py": text}))
    assert {one.status for one in findings if one.rule == "CHP001"} == {FindingStatus.REWRITE}
    assert set(after.replace(newline, "")).isdisjoint("\r\n")
    again, later = rewrite_text("a.py", after, Project({"a.py": after}))
    assert again == after and not [one for one in later if one.status is FindingStatus.REWRITE]
    before, migrated = load(text, tmp_path), load(after, tmp_path)
    assert described(migrated) == described(before)
    pickle.loads(pickle.dumps(migrated.make().collate_fn))


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=modules(), chosen=st.data())
@pytest.mark.filterwarnings("ignore")
def test_any_of_its_hunks_alone_build_the_same_loader(text: str, chosen: st.DataObject, tmp_path: Path) -> None:
    result = rewrite_in_hunks("a.py", text, Project({"a.py": text}))
    module = Module("a.py", text)
    assert text_with_hunks(module, result.hunks, result.public, ImportStyle()) == result.text
    accepted = [hunk for hunk in result.hunks if chosen.draw(st.booleans())]
    after = text_with_hunks(module, accepted, result.public, ImportStyle())
    assert (after == text) == (not accepted)
    assert described(load(after, tmp_path)) == described(load(text, tmp_path))

"""Samplers of several processes get the number of the epoch, from the loop that counts epochs."""

from __future__ import annotations

import textwrap

import pytest
from support import RULES, migrate, reports

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.syntax.project import Project

DISTRIBUTED = """
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm, trange

def f(data, args, work):
"""


def migrate_loop(text: str, **others: str) -> tuple[str, list[str]]:
    """The body of a function after the rule, and what was only reported."""
    after, findings = migrate("CHP014", DISTRIBUTED + textwrap.indent(textwrap.dedent(text), "    "), **others)
    return textwrap.dedent(after.partition("work):\n")[2]), reports(findings)


@pytest.mark.parametrize(
    ("loop", "first"),
    [
        ("for epoch in range(9):\n    for b in loader:\n        work(b)\n", "    sampler.set_epoch(epoch)\n"),
        ("for e in trange(9):\n    for n, b in enumerate(loader):\n        work(b)\n", "    sampler.set_epoch(e)\n"),
        ("for e in tqdm(range(9)):\n    work(loader)\n", "    sampler.set_epoch(e)\n"),
        ("for e in range(9):\n    it = iter(loader)\n", "    sampler.set_epoch(e)\n"),
        ("for epoch in range(9):\n\tfor b in tqdm(loader):\n\t\twork(b)\n", "\tsampler.set_epoch(epoch)\n"),
    ],
)
def test_the_sampler_is_told_first_of_all(loop: str, first: str) -> None:
    made = "sampler = DistributedSampler(data)\nloader = DataLoader(data, 8, False, sampler)\n"
    header, newline, rest = loop.partition("\n")
    assert migrate_loop(made + loop) == (f"{made}{header}{newline}{first}{rest}", [])


def test_a_loop_on_one_line() -> None:
    made = "loader = DataLoader(data, sampler=DistributedSampler(data))\n"
    assert migrate_loop(f"{made}for e in range(9): work(loader)\n") == (
        f"{made}for e in range(9): loader.sampler.set_epoch(e); work(loader)\n",
        [],
    )


def test_the_loop_that_counts_epochs_is_found_among_others() -> None:
    text = """
        for fold in range(5):
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(9):
                for part in range(2):
                    work(loader)
    """
    after, messages = migrate_loop(text)
    assert not messages and "for epoch in range(9):\n        sampler.set_epoch(epoch)\n" in after


def test_samplers_on_self_are_told_by_the_names_of_the_loop() -> None:
    text = """
        import torch.utils.data as tud

        class Trainer:
            def __init__(self, data):
                self.sampler = tud.DistributedSampler(data)
                self.loader = tud.DataLoader(data, sampler=self.sampler)

            def run(self):
                for epoch in range(9):
                    self.train(self.loader)
    """
    after, findings = migrate("CHP014", text)
    assert not reports(findings) and "        self.sampler.set_epoch(epoch)\n" in after


@pytest.mark.parametrize(
    "text",
    [
        "sampler = DistributedSampler(data, shuffle=False)\nloader = DataLoader(data, sampler=sampler)\n",
        "sampler = DistributedSampler(data, 2, 0, False)\nloader = DataLoader(data, sampler=sampler)\n",
        "sampler = args.sampler\nloader = DataLoader(data, sampler=sampler)\n",
        "loader = DataLoader(data, shuffle=True)\nsampler = DistributedSampler(data)\n",
        "loader = args.loader\nsampler = DistributedSampler(data)\n",
    ],
)
def test_samplers_that_need_no_epoch(text: str) -> None:
    loop = "for epoch in range(9):\n    for b in loader:\n        work(b)\n"
    assert migrate_loop(text + loop) == (text + loop, [])


@pytest.mark.parametrize(
    "loop",
    [
        "for epoch in range(9):\n    sampler.set_epoch(epoch)\n    work(loader)\n",
        "for epoch in range(9):\n    loader.sampler.set_epoch(epoch)\n    work(loader)\n",
        "for epoch in range(9):\n    if args:\n        sampler.set_epoch(epoch)\n    work(loader)\n",
        "for epoch in range(9):\n    train(loader, epoch)\n",
        "for epoch in range(9):\n    print(len(loader))\n",
        "for epoch in args:\n    work(loader)\n",
        "for b in loader:\n    work(b)\n",
    ],
)
def test_what_is_told_already_or_no_loop_of_epochs(loop: str) -> None:
    made = "from helpers import train\nsampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\n"
    helpers = "def train(loader, epoch):\n    loader.sampler.set_epoch(epoch)\n"
    assert migrate_loop(made + loop, helpers=helpers) == (made + loop, [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for _ in range(9):\n    work(loader)\n", "no variable for the epoch"),
        ("for a, b in enumerate(range(9)):\n    work(loader)\n", None),
        ("for a in range(9):\n    for b in range(9):\n        work(loader)\n", "which of the loops"),
    ],
)
def test_a_loop_that_cannot_tell_the_epoch(text: str, reason: str | None) -> None:
    made = "sampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\n"
    after, messages = migrate_loop(made + text)
    assert after == made + text and [reason in one for one in messages if reason] == [True] * (reason is not None)


def test_a_sampler_that_may_be_another_is_only_told_where_its_class_is_at_hand() -> None:
    text = """
        def f(data, args, work):
            from torch.utils.data import DataLoader, DistributedSampler
            sampler = DistributedSampler(data) if args else None
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(9):
                work(loader)
    """
    after, findings = migrate("CHP014", text)
    assert after == textwrap.dedent(text)
    assert "`sampler` may not be a DistributedSampler" in reports(findings)[0]


def test_a_loop_on_one_line_has_no_room_for_a_check_of_the_sampler() -> None:
    text = "sampler = DistributedSampler(data) if args else None\nloader = DataLoader(data, sampler=sampler)\n"
    after, messages = migrate_loop(text + "for epoch in range(9): work(loader)\n")
    assert after == text + "for epoch in range(9): work(loader)\n"
    assert "the loop is on one line, so the rule cannot insert an `if` statement" in messages[0]


def test_without_leave_nothing_changes() -> None:
    text = DISTRIBUTED + "    loader = DataLoader(data, sampler=DistributedSampler(data))\n"
    text += "    for e in range(9):\n        work(loader)\n"
    after, (finding,) = rewrite_text("a.py", text, Project({"a.py": text}), rules=[RULES["CHP014"]])
    assert (after, finding.status) == (text, FindingStatus.OPT_IN)


@pytest.mark.parametrize(
    ("made", "condition"),
    [
        ("sampler = DistributedSampler(data) if args.distributed else None\n", True),
        ("sampler = None if args.local_rank == -1 else DistributedSampler(data)\n", True),
        ("if world_size > 1:\n    sampler = DistributedSampler(data)\nelse:\n    sampler = None\n", True),
        ("sampler = DistributedSampler(data) if args.shuffled else None\n", False),
        ("sampler = DistributedSampler(data)\n", False),
    ],
)
def test_in_a_guard_for_several_processes_it_needs_no_leave(made: str, condition: bool) -> None:
    body = f"{made}loader = DataLoader(data, sampler=sampler)\nfor epoch in range(9):\n    work(loader)\n"
    text = DISTRIBUTED + textwrap.indent(body, "    ")
    after, (finding,) = rewrite_text("a.py", text, Project({"a.py": text}), rules=[RULES["CHP014"]])
    assert finding.status is (FindingStatus.REWRITE if condition else FindingStatus.OPT_IN)
    lines = ["if isinstance(sampler, DistributedSampler):", "    sampler.set_epoch(epoch)", "work(loader)"]
    rewritten = text.replace("        work(loader)\n", "".join(f"        {line}\n" for line in lines))
    assert after == (rewritten if condition else text)
    assert finding.message == "with several processes every epoch has the same order: call `sampler.set_epoch(epoch)`"


def test_a_loop_that_only_several_processes_run_needs_no_leave() -> None:
    body = """
        sampler = DistributedSampler(data)
        loader = DataLoader(data, sampler=sampler)
        if args.distributed:
            for epoch in range(9):
                work(loader)
    """
    text = DISTRIBUTED + textwrap.indent(textwrap.dedent(body), "    ")
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}), rules=[RULES["CHP014"]])
    assert "for epoch in range(9):\n            sampler.set_epoch(epoch)\n" in after

"""The codemod benchmark counts and checks rightly, on tiny trees; how fast anything is, is not tested here."""

from __future__ import annotations

import hashlib
import importlib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from chirp_migrate.training.process.machine import describe_machine

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def part(name: str) -> Any:
    return importlib.import_module(f"codemod_bench.{name}")


def sites(texts: dict[str, str]) -> list[Any]:
    return list(part("census").count_texts({path: text.encode() for path, text in texts.items()}).sites)


def kinds(text: str) -> list[tuple[int, str, bool, bool]]:
    return [(site.line, site.kind, site.starred, site.certain) for site in sites({"module.py": text})]


PLAIN, STARRED, MAYBE = ("call", False, True), ("call", True, True), ("call", False, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from torch.utils.data import DataLoader\nDataLoader(d)", [(2, *PLAIN)]),
        ("from torch.utils.data import DataLoader as DL\nDL(d, **options)", [(2, *STARRED)]),
        ("from torch.utils.data.dataloader import DataLoader\nDataLoader(*given)", [(2, *STARRED)]),
        ("import torch\ntorch.utils.data.DataLoader(d)", [(2, *PLAIN)]),
        ("import torch.utils.data as tud\ntud.DataLoader(d)", [(2, *PLAIN)]),
        ("from torch.utils import data\ndata.DataLoader(d)", [(2, *PLAIN)]),
        ("from torch.utils.data import *\nDataLoader(d)", [(2, *PLAIN)]),
        ("def f():\n    from torch.utils.data import DataLoader\n    return DataLoader(d)", [(3, *PLAIN)]),
        ("def f():\n    from torch.utils.data import DataLoader\nDataLoader(d)", []),
        ("from torch.utils.data import DataLoader\ndef f(DataLoader):\n    return DataLoader(d)", []),
        ("from other import DataLoader\nDataLoader(d)", []),
        ("class DataLoader: ...\nDataLoader(d)", []),
        (
            "try:\n    from torch.utils.data import DataLoader\nexcept ImportError:\n"
            "    DataLoader = None\nDataLoader(d)",
            [(5, *PLAIN)],
        ),
        (
            "if fast:\n    from other import DataLoader\nelse:\n"
            "    from torch.utils.data import DataLoader\nDataLoader(d)",
            [(5, *MAYBE)],
        ),
        ("from torch.utils.data import DataLoader\nclass L(DataLoader): ...", [(2, "subclass", False, True)]),
        ("from torch.utils.data import DataLoader\nx = partial(DataLoader, d)", [(2, "value", False, True)]),
        ("from torch.utils.data import DataLoader\nL = DataLoader\nL(d)", [(2, "value", False, True)]),
        (
            "from torch.utils.data import DataLoader\ndef f(x: DataLoader) -> list[DataLoader]:\n"
            "    assert isinstance(x, DataLoader) or type(x) == DataLoader\n    y: DataLoader = x\n    DataLoader.a(x)",
            [],
        ),
        ("text = 'DataLoader(d)'  # DataLoader(d)", []),
    ],
)
def test_sites_are_what_names_mean(text: str, expected: list[tuple[int, str, bool, bool]]) -> None:
    assert kinds(text) == expected


def test_names_are_followed_through_the_tree() -> None:
    found = sites(
        {
            "package/__init__.py": "from .parts import Loader",
            "package/parts.py": "from torch.utils.data import DataLoader as Loader",
            "package/inner/use.py": "from ..parts import Loader as L\nL(d)",
            "package/own.py": "class Loader: ...",
            "tests/use.py": "from package import Loader\nLoader(d)",
            "tests/own.py": "from package.own import Loader\nLoader(d)",
        }
    )
    assert [(site.path, site.line, site.through) for site in found] == [
        ("package/inner/use.py", 2, True),
        ("tests/use.py", 2, True),
    ]


def test_columns_count_characters() -> None:
    (site,) = sites({"a.py": "from torch.utils.data import DataLoader\nname = 'ähm'; x = DataLoader(d)"})
    assert (site.line, site.column) == (2, 19)


def test_files_that_are_not_python_are_told() -> None:
    census = part("census").count_texts({"a.py": b"print 'DataLoader'", "b.py": b"print 'nothing'"})
    assert census.unreadable == ("a.py",) and census.sites == ()


BEFORE = dedent("""\
    from torch.utils.data import DataLoader

    # the loader
    def build(d):
        return DataLoader(
            d,  # data
            num_workers=2,
        )

    def other():
        return 1
    """)
AFTER = BEFORE.replace("torch.utils.data import DataLoader", "chirpid_patch import Factory")
AFTER = AFTER.replace("return DataLoader(", "return Factory.create(")


def check(after: str, lines: set[int], before: str = BEFORE) -> dict[str, list[str]]:
    found = part("checks").check_file("a.py", before.encode(), after.encode(), lines)
    return {name: places for name, places in vars(found).items() if places}


def test_a_right_rewrite_passes() -> None:
    assert check(AFTER, {5}) == {}


@pytest.mark.parametrize(
    ("old", "new", "kind", "place"),
    [
        ("return 1", "return 2", "unexplained", "a.py:11"),
        ("return 1", "return (", "uncompilable", "a.py"),
        ("return 1", "return DataLoader", "undefined", "a.py: undefined name 'DataLoader'"),
        ("  # data", "", "lost_comments", "a.py: # data"),
        ("def other", "def build", "redefined", "a.py: build"),
        ("def build", "import os\n\ndef build", "untidy", "a.py: 'os' imported but unused"),
    ],
)
def test_what_is_wrong_is_found(old: str, new: str, kind: str, place: str) -> None:
    assert place in check(AFTER.replace(old, new), {5})[kind]


def test_what_moves_takes_its_lines_and_uses_along() -> None:
    before = "def f():\n    # about D\n    class D:\n        x = 1\n    return D()\n"
    after = "# about D\nclass D:\n    x = 1\n\n\ndef f():\n    return D(y=2)\n"
    assert check(after, {3}, before) == {}
    assert "a.py:5" in check(after, set(), before)["unexplained"]


def test_line_endings_outside_edits_count() -> None:
    changed = AFTER.replace("return 1\n", "return 1\r\n")
    assert check(changed, {5}) == {"unexplained": ["a.py:11"]}


def finding(path: str, line: int, column: int, status: str, **more: Any) -> dict[str, Any]:
    return {"rule": "CHP001", "path": path, "line": line, "column": column, "status": status, "message": "m", **more}


def settled(findings: list[dict[str, Any]], after: str, ledger: dict[str, Any] | None = None) -> Any:
    count = part("census").count_texts
    before = "from torch.utils.data import DataLoader\nDataLoader(a); DataLoader(b, **c)\nclass L(DataLoader): ...\n"
    return part("account").account_for_sites(
        count({"a.py": before.encode()}), count({"a.py": after.encode()}), findings, ledger
    )


LISTED = finding("a.py", 3, 9, "report", why="subclass")
DONE = [finding("a.py", 2, 1, "rewrite"), finding("a.py", 2, 16, "rewrite")]
LEFT = "from torch.utils.data import DataLoader\nF(a); F(b, **c)\nclass L(DataLoader): ...\n"


def test_sites_findings_and_both_counts_are_settled() -> None:
    ledger = {"sites": {"found": 3, "migrated": 2, "fine": 0, "suppressed": 0, "opt_in": 0, "listed": 1}}
    account = settled([*DONE, LISTED], LEFT, ledger)
    assert (account.plain.migrated, account.starred.migrated, account.others.listed) == (1, 1, 1)
    assert account.plain.share == account.starred.share == 1 and account.reasons == {"subclass": 1}
    assert not (account.unaccounted or account.unknown or account.disagreements)


def test_what_does_not_add_up_is_told() -> None:
    assert settled(DONE, LEFT).unaccounted == ["a.py:3 (subclass)"]
    assert settled([*DONE, LISTED, finding("a.py", 9, 1, "report")], LEFT).unknown == ["a.py:9 (report)"]
    assert settled([*DONE, LISTED], "").disagreements == ["a.py: 3 sites removed, 2 reported as migrated"]
    wrong = {"sites": {"found": 4, "migrated": 2, "listed": 1}}
    assert len(settled([*DONE, LISTED], LEFT, wrong).disagreements) == 2


def test_reasons_leave_out_what_is_particular() -> None:
    reason = part("account").reason
    messages = [f"{name} subclasses DataLoader, so what its loaders do is its own" for name in ("Mine", "YourLoader")]
    assert len({reason({"message": message}) for message in messages}) == 1
    assert reason({"message": "anything", "why": "used-as-value"}) == "used-as-value"


def archive(folder: Path) -> Path:
    path = folder / "thing-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        entry = tarfile.TarInfo("thing-1.0/thing.py")
        entry.size = 6
        file.addfile(entry, io.BytesIO(b"x = 1\n"))
    return path


def test_packages_are_known_by_their_bytes(tmp_path: Path) -> None:
    packages = part("packages")
    path = archive(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    thing = packages.Package("thing", "1.0", digest)
    assert packages.fetch(thing, tmp_path) == path
    assert (packages.unpack(path, tmp_path / "tree") / "thing.py").read_bytes() == b"x = 1\n"
    with pytest.raises(packages.Unavailable, match="not the pinned"):
        packages.fetch(packages.Package("thing", "1.0", "0" * 64), tmp_path)


def test_there_are_enough_packages_and_each_is_pinned() -> None:
    packages = part("packages")
    known = (*packages.PACKAGES, *packages.MORE_PACKAGES, *packages.SCRIPT_PACKAGES)
    assert len({package.name for package in known}) == len(known) >= len(packages.PACKAGES) >= 10
    assert all(re.fullmatch("[0-9a-f]{64}", package.sha256) and package.version[0].isdecimal() for package in known)
    assert len(known) == Path(packages.__file__).with_suffix(".txt").read_text(encoding="utf-8").count("--hash=")


def test_times_are_compared_round_by_round() -> None:
    speed, report = part("speed"), part("report")
    timed = speed.Timed("tree", 3, 2, {speed.OURS: [1.0, 2.0], "libcst.tool rename": [12.0, 22.0]})
    assert timed.ratios("libcst.tool rename").tolist() == [12.0, 11.0]
    reached = report.outcomes([], [timed], [], speed.contenders(2, Path("torchfix")))
    assert [(one.measured, one.holds) for one in reached] == [("11.5 (11.2 to 11.8)", True), ("", None)]


def test_a_command_that_fails_is_told_and_not_timed(tmp_path: Path) -> None:
    speed = part("speed")
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    ours = speed.Contender(speed.OURS, lambda tree: [sys.executable, "-c", "print('done')"], "done")
    broken = speed.Contender("broken", lambda tree: [sys.executable, "-c", "raise SystemExit('no')"], "done")
    idle = speed.Contender("idle", lambda tree: [sys.executable, "-c", "print('I do not')"], "done")
    timed = speed.measure("tree", tmp_path, [ours, broken, idle], 1, 1, lambda doing: None)
    assert list(timed.seconds) == [speed.OURS] and len(timed.seconds[speed.OURS]) == 1
    assert "ended with 1: no" in timed.failed["broken"] and "I do not" in timed.failed["idle"]


def test_the_report_says_goals_and_problems() -> None:
    survey, account, report = part("survey"), part("account"), part("report")
    done = account.Account(account.Tally(10, 9, 1), account.Tally(2, 1, 1), reasons={"no-dataset": 2})
    done.unaccounted.append("a.py:1 (call)")
    one = survey.Surveyed("thing 1.0", 3, 1, 0.5, done, {"CHP001": {"rewrite": 10, "report": 2}})
    reached = report.outcomes([one], [], [], [])
    assert [outcome.holds for outcome in reached] == [False, True, False, False]
    settings = {"command": "python benchmarks/codemod.py", "machine": describe_machine(1), "reduced": True}
    text = report.as_markdown([one], [], [], reached, settings)
    assert "| thing 1.0 | 3 | 1 | 10 | 9 (90.0%) | 2 | 1 (50.0%) | 0 | 0 |" in text
    assert "site without a finding: a.py:1 (call)" in text and "| no-dataset | 2 |" in text
    assert report.as_data([one], [], [], reached, settings)["survey"][0]["account"]["reasons"] == {"no-dataset": 2}


def test_the_report_shows_how_costs_grow() -> None:
    growth, report = part("growth"), part("report")
    grown = [
        growth.Grown(500, 2, growth.Cost(5.0, 90.0), 5.0, {}),
        growth.Grown(1000, 4, growth.Cost(12.6, 251.0), 10.0, {"CHP001": 2, "CHP018": 3}),
    ]
    reached = report.outcomes([], [], grown, [])
    assert [(goal.measured, goal.holds) for goal in reached] == [("1.26", False), ("251 MB", False), ("2", False)]
    settings = {"command": "python benchmarks/codemod.py", "machine": describe_machine(1), "reduced": False}
    text = report.as_markdown([], [], grown, reached, settings)
    assert "| 1000 | 4 | 12.6 | 12.6 | 10.0 | 1.26 | 251 | 2 of CHP001, 3 of CHP018 |" in text


def test_unknown_packages_are_refused_and_help_gives_examples() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        script = str(BENCHMARKS / "codemod.py")
        return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)

    refused = run("--packages", "nonsense")
    assert refused.returncode == 2 and "nonsense" in refused.stderr and "timm" in refused.stderr
    assert "Examples:" in run("--help").stdout

"""A loader that starts again in every turn of a loop is reported."""

from __future__ import annotations

import textwrap

import pytest
from support import migrate

from chirp_migrate.plans.plan import FindingStatus


@pytest.mark.parametrize(
    "text",
    [
        "while True:\n    work(next(iter(loader)))",
        "for step in range(9):\n    x, y = next(iter(loader))",
        "for step in range(9):\n    with work:\n        x = next(iter(self.loaders['train']), None)",
        "x = [next(iter(loader)) for _ in range(9)]",
        "while next(iter(loader)):\n    work()",
    ],
)
def test_a_loader_restarted_in_a_loop_is_reported(text: str) -> None:
    code = f"def f(self, loader, work):\n{textwrap.indent(text, '    ')}\n"
    after, (finding,) = migrate("CHP016", code)
    assert after == code and finding.status is FindingStatus.REPORT and "restarts the loader" in finding.message


@pytest.mark.parametrize("package", ["chirpid_patch", "chirpid_patch.factory"])
def test_what_the_factory_builds_is_a_loader_wherever_it_is_imported_from(package: str) -> None:
    made = f"from {package} import OptimalDataLoaderFactory as Factory\n\nbatches = Factory.create_loader(data)\n"
    _, (finding,) = migrate("CHP016", f"{made}while True:\n    next(iter(batches))\n")
    assert "restarts the loader" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "x = next(iter(loader))",
        "for x in next(iter(loader)):\n    work(x)",
        "for loader in loaders:\n    work(next(iter(loader)))",
        "for name, loader in loaders.items():\n    work(next(iter(loader)))",
        "for name in loaders:\n    work(next(iter(loaders[name])))",
        "for data in work:\n    loader = make(data)\n    work(next(iter(loader)))",
        "x = [next(iter(one_loader)) for one_loader in loaders]",
        "for _ in work:\n    def sample():\n        return next(iter(loader))",
        "for _ in work:\n    x = next(iter(work))",
        "for _ in work:\n    x = next(it_loader)",
    ],
)
def test_a_loader_started_once_is_not(text: str) -> None:
    code = f"def f(loader, loaders, work, it_loader):\n{textwrap.indent(text, '    ')}\n"
    assert migrate("CHP016", code) == (code, [])

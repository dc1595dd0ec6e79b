"""One run of ``tune``: what is asked of the child, and what is made of its answer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.engine.discover import discover as python_files
from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.process.child import Child, Role
from chirp_migrate.training.process.interrupts import signals_as_one_interrupt
from chirp_migrate.training.process.snapshot import copy_tree
from chirp_migrate.training.workload.entry_points import Source, discover
from chirp_migrate.training.workload.hook import file_of, is_reference
from chirp_migrate.tune.config import TuneConfig
from chirp_migrate.tune.request import Findings, Grid, Request
from chirp_migrate.verify.options import resolve

__all__ = ["Asked", "run_child", "tune_tree"]

_ROLE = Role("The process that measures", "", "--seconds and fewer --num-workers")


@dataclass(frozen=True)
class Asked:
    """What the user asked for.

    Attributes:
        root: folder of the backend.
        grid: what is swept.
        dataset, unaugmented: ``MODULE:CALLABLE``; empty for none.
        config: the training's configuration; None where none was given.
        workload: ``FILE:FUNCTION``; None for what the settings say, or what is found.
        profile: file that what is picked is kept in; None for none.
        timeout_s: seconds after which the process counts as hung.
    """

    root: Path
    grid: Grid
    dataset: str = ""
    unaugmented: str = ""
    config: TuneConfig | None = None
    workload: str | None = None
    profile: Path | None = None
    timeout_s: float = 600.0


def tune_tree(asked: Asked, progress: Callable[[str], None]) -> Findings:
    """Run the user's code in a process of its own and measure ways of loading its datasets.

    A training runs in a temporary copy, since it may write; a dataset alone is read where it is, with the data there.

    Raises:
        UsageProblem: what was asked for cannot be measured.
        WorkloadFailed: the user's code failed.
    """
    _check(asked)
    with tempfile.TemporaryDirectory(prefix="chirp-migrate-tune-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        request = (
            _of_dataset(asked) if asked.dataset or asked.config is not None else _of_training(asked, folder, progress)
        )
        place = "a temporary copy" if request.origin else str(asked.root)
        progress(f"tune runs your own code, in {place}, in a process of its own")
        return run_child(request, asked.timeout_s, progress)


def run_child(request: Request, timeout_s: float, progress: Callable[[str], None]) -> Findings:
    """Run ``request`` in a process of its own; it and all it started are gone when this returns or raises.

    Raises:
        UsageProblem: what was asked for cannot be measured.
        WorkloadFailed: the user's code raised, crashed the interpreter, or took longer than so many seconds.
    """
    with (
        signals_as_one_interrupt(),
        Child("chirp_migrate.tune.runner", request, Findings, _ROLE, timeout_s, progress=progress) as child,
    ):
        return child.result()


def _check(asked: Asked) -> None:
    for option, reference in (("--dataset", asked.dataset), ("--unaugmented", asked.unaugmented)):
        if reference and not is_reference(reference):
            raise UsageProblem(
                f'{option} {reference} must name a function or class as "package.module:name" or "folder/file.py:name".'
            )
    if asked.unaugmented and not asked.dataset:
        raise UsageProblem("--unaugmented belongs to a --dataset: give both.")
    if asked.workload is not None and (asked.dataset or asked.config is not None):
        raise UsageProblem("--workload watches a training, and --dataset or --config name its data: give one of them.")


def _of_dataset(asked: Asked) -> Request:
    return Request(
        tree=str(asked.root),
        grid=asked.grid,
        dataset=asked.dataset,
        unaugmented=asked.unaugmented,
        config=asked.config,
        profile=str(asked.profile or ""),
        uses_runtime=_uses_runtime(asked.root),
    )


def _of_training(asked: Asked, folder: Path, progress: Callable[[str], None]) -> Request:
    options = resolve(asked.root, {"workload": asked.workload})
    if options.source is Source.COMMAND:
        raise UsageProblem(
            "the settings for verify name a command, whose loaders cannot be seen: give tune a --workload or --dataset."
        )
    if options.entry is None:
        found = discover(asked.root, options.model)
        entries, model = found.entry_points, found.model
    else:
        hook = options.entry.hook
        if hook.rpartition(":")[0].endswith(".py") and not (asked.root / file_of(hook)[0]).is_file():
            raise UsageProblem(
                f"there is no {file_of(hook)[0]} in {asked.root}: say with --workload where the workload is, or name a "
                "dataset with --dataset MODULE:CALLABLE."
            )
        entries, model = (options.entry,), ""
    tree = folder / "tree"
    too_large = copy_tree(asked.root, tree).too_large
    if too_large:
        progress(f"left out of the copy for their size: {', '.join(too_large)} (--dataset reads them where they are)")
    return Request(
        tree=str(tree),
        grid=asked.grid,
        entry_points=entries,
        model=model,
        sizes=options.sizes,
        origin=str(asked.root),
        profile=str(asked.profile or ""),
    )


def _uses_runtime(root: Path) -> bool:
    """Whether a file of the backend mentions the runtime: it loads by it, then."""
    return any(b"chirpid_patch" in (root / name).read_bytes() for name in python_files(root, notebooks=False).files)

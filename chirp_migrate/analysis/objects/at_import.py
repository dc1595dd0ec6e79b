"""Find modules whose import iterates over loaders with workers.

A spawned worker imports the main module again. The import would then try to start workers again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from chirp_migrate.analysis.objects.abstract_objects import CreationPlace
from chirp_migrate.analysis.objects.importers import files_with_importers, module_name_without_package
from chirp_migrate.analysis.objects.pickled import find_unpicklable_objects
from chirp_migrate.analysis.objects.running import AbstractRun
from chirp_migrate.syntax.gap_patterns import GAP
from chirp_migrate.syntax.project import Project

#: An argument that sets the number of a loader's workers.
GIVES_WORKERS = re.compile(rf"\b(num|max)_workers{GAP}=(?!=)")


@dataclass(frozen=True)
class WorkerStartAtImport:
    """A place in a module at which the import of the module starts workers.

    Attributes:
        place: the call that builds the loader, if the call is in the module; else the code in the module that iterates
            over the loader.
        builds: whether ``place`` is the call that builds the loader.
    """

    place: CreationPlace
    builds: bool


def find_worker_starts_at_import(project: Project, path: str) -> list[WorkerStartAtImport]:
    """Return where the import of a module iterates over loaders with workers, or passes loaders to unknown code."""
    if path not in project.texts:
        return []
    run = find_unpicklable_objects(project).run_for_module(path)
    run.module(path)
    return list(dict.fromkeys(_places(run, path)))


def _places(run: AbstractRun, path: str) -> Iterator[WorkerStartAtImport]:
    for loader, calls in run.iterated:
        first = calls[0]
        # If `first` is in another module, the import of that module starts the workers.
        if first.path == path and loader.sends_to_workers:
            yield (
                WorkerStartAtImport(loader.place, builds=True)
                if loader.place.path == path
                else WorkerStartAtImport(first, builds=False)
            )


@lru_cache(maxsize=4)
def modules_with_loaders(project: Project) -> frozenset[str]:
    """Return the names of modules that may build loaders with workers, and of modules that may import such modules.

    The names have no package, such as ``train`` for ``src/train.py``. Only words in the texts of the modules count, so
    the result may contain too many names.
    """
    building = [path for path, text in project.matching(GIVES_WORKERS) if "oader" in text]
    return frozenset(map(module_name_without_package, files_with_importers(project, building)))


@lru_cache(maxsize=4)
def _original_texts(project: Project) -> tuple[frozenset[str], frozenset[str]]:
    """Return two sets of texts of modules, from before any rewrite.

    The first set contains the texts of all modules that may build loaders with workers, or import such modules. The
    second set contains those of these texts whose import may start workers.
    """
    building = [path for path, text in project.matching(GIVES_WORKERS) if "oader" in text]
    texts = {path: project.text(path) for path in files_with_importers(project, building)}
    found = [text for path, text in texts.items() if find_worker_starts_at_import(project, path)]
    return frozenset(texts.values()), frozenset(found)


def may_start_workers_at_import(project: Project, text: str) -> bool:
    """Return whether the import of a module with this text may start workers.

    The result is also True for a text that the analysis has not seen, such as a text that a rule has rewritten.
    """
    known, found = _original_texts(project)
    return text in found or text not in known

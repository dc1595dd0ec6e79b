"""CHP018: open files, connections, locks and CUDA tensors that a dataset takes along to its workers (R-000-1.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_names import possible_datasets
from chirp_migrate.analysis.datasets.dataset_state import pickled_state
from chirp_migrate.analysis.devices.device_moves import moves_to_cuda
from chirp_migrate.rules.api import (
    CALL,
    DATASET_WORDS,
    GAP,
    Module,
    Outline,
    Project,
    Proposal,
    Rule,
    Safety,
    dataset_names,
    is_call_of,
    resolves_to,
)

_LATER = "open it on first use in the worker, drop it in `__getstate__`"
_HDF5 = ("an open HDF5 file", "cannot be pickled, and forked workers may read wrong data from it", _LATER)
_GENERATOR = (
    "a generator",
    "cannot be pickled, and each forked worker runs through it, so that items repeat",
    "make it where it is used, in the worker",
)
_CUDA = (
    "CUDA tensors",
    "forked workers cannot use CUDA, and others open a CUDA context each",
    "keep them on the CPU and move batches in the training loop",
)
#: By what makes it: what it is, what becomes of it in workers, and what to do instead.
_KINDS = {
    re.compile(
        r"(builtins|io|gzip|bz2|lzma|codecs)\.open|tempfile\.(Named)?TemporaryFile|gzip\.GzipFile|zipfile\.ZipFile"
        r"|tarfile\.(open|TarFile(\.\w*open)?)|_?csv\.(reader|DictReader)|cv2\.VideoCapture|av\.open|soundfile\.SoundFile"
    ): ("an open file", "cannot be pickled, and forked workers share its position", _LATER),
    re.compile(r"os\.(scandir|walk)|glob\.iglob"): _GENERATOR,
    re.compile(r"h5py\.File|tables\.open_file"): _HDF5,
    re.compile(r"lmdb\.(open|Environment)"): (
        "an open LMDB environment",
        "cannot be pickled, and LMDB forbids its use in a forked process",
        _LATER,
    ),
    re.compile(r"sqlite3\.connect|socket\.(socket|create_connection)|psycopg2?\.connect|pymysql\.connect"): (
        "an open connection",
        "cannot be pickled, and forked workers must not share it",
        _LATER.replace("open it", "connect"),
    ),
    re.compile(r"threading\.(Lock|RLock|Condition|(Bounded)?Semaphore|Event|Barrier|local)"): (
        "an object of `threading`",
        "cannot be pickled, and each forked worker has its own",
        "make it in the worker, drop it in `__getstate__`, or use `multiprocessing`'s",
    ),
    re.compile(
        r"threading\.(Thread|Timer)|concurrent\.futures\.(\w+\.)?ThreadPoolExecutor"
        r"|multiprocessing\.(pool\.ThreadPool|dummy\.Pool)"
    ): (
        "threads",
        "cannot be pickled, and do not exist in forked workers, which may wait forever",
        "start them on first use in the worker, drop them in `__getstate__`",
    ),
}
#: What makes one of these, other than in a ``with``.
_WORDS = re.compile(
    r"(?<![\w.])(?<!with )(\w+\s*\.\s*){0,8}(\w*open|open_file|\w*File|scandir|walk|iglob|reader|DictReader|Environment"
    rf"|connect|socket|create_connection|VideoCapture)(\s+as\b|{CALL})|threading|ThreadPool|\.{GAP}cuda{CALL}|[\"']cuda"
    r"|\.\w+\s*(:[^=\r\n]{0,200})?=[\s\\]*\("
)
_HDF5_PART = re.compile(r"h5py\.File")

Kind = tuple[str, str, str]


class UnpicklableState(Rule):
    code = "CHP018"
    name = "unpicklable-state"
    reason = (
        "Worker processes get the dataset pickled, or as it was when they were forked. Open files, connections and "
        "locks survive neither: the first fails, the second shares what was not made to be shared."
    )
    safety = Safety.ADVICE
    finds_bugs = True
    trigger = ("__getitem__", "__iter__", *DATASET_WORDS)
    beside = ("__init__", _WORDS)
    follows = frozenset()

    def names(self, project: Project) -> Set[str]:
        """Those of dataset classes of the project."""
        return dataset_names(project)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a class may be a dataset."""
        return bool(outline.once(possible_datasets, project))

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Report what datasets keep on ``self`` that workers cannot have."""
        for attribute, value, kind in pickled_state(module, project, lambda one: _kind(module, project, one)):
            what, happens, remedy = kind
            yield Proposal(
                module.span(value)[0],
                f"`self.{attribute}`, {what} made in `__init__`: {happens}. With workers, {remedy}",
            )


def _kind(module: Module, project: Project, value: cst.BaseExpression) -> Kind | None:
    match value:
        case cst.GeneratorExp():
            return _GENERATOR
        case cst.Subscript(value=file, slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString()))]):
            return _HDF5 if is_call_of(module, file, _HDF5_PART) else None
        case cst.Call() if moves_to_cuda(module, value):
            return _CUDA
        case cst.Call():
            return next((kind for names, kind in _KINDS.items() if resolves_to(module, value, names, project)), None)
    return None

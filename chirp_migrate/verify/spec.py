"""What the parent process tells a child to do, and what the child answers: plain data, as JSON files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from chirp_migrate.verify.api import Signature
from chirp_migrate.verify.workload import EntryPoint, Sizes

__all__ = ["EntryResult", "Mode", "PassRecord", "RunResult", "RunSpec", "write_json"]


class Mode(str, Enum):
    """One pass over all entry points.

    PROBE watches the loaders (untimed), TIMED leaves everything alone and takes the time, CACHED feeds every loop
    from one batch held in memory, which leaves the time of everything but loading.
    """

    PROBE = "probe"
    TIMED = "timed"
    CACHED = "cached"


@dataclass(frozen=True)
class RunSpec:
    """One child process: the tree it runs in and the passes it makes, in order.

    Attributes:
        tree: root of the backend, the working directory of the child.
        output: file for the :class:`RunResult`.
        threads: compute threads, pinned to the same number on both sides.
        api_names: names to describe (see :func:`chirp_migrate.verify.api.public_names`); empty for none.
    """

    tree: str
    output: str
    entry_points: tuple[EntryPoint, ...]
    model: str
    sizes: Sizes
    threads: int
    modes: tuple[Mode, ...]
    api_names: dict[str, list[str]]

    def write(self, path: Path) -> None:
        """Write as JSON, replacing the file at once."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        """Read what :meth:`write` wrote."""
        values = json.loads(path.read_text(encoding="utf-8"))
        values["entry_points"] = tuple(EntryPoint.from_json(entry) for entry in values["entry_points"])
        values["sizes"] = Sizes.from_json(values["sizes"])
        values["modes"] = tuple(Mode(mode) for mode in values["modes"])
        return cls(**values)


@dataclass
class PassRecord:
    """One walk over one loader, as the training code saw it.

    Attributes:
        loader: number of the loader within the entry point, in order of first use.
        role: ``train`` when gradients were enabled as the first batch was taken, else ``validation``.
        random: whether fetching one sample again gives other values (augmentation is active).
        shuffled: whether the loader's sampler orders the samples at random.
        whole: whether the sampler is one of PyTorch's that names every sample exactly once.
        samples: samples taken.
        batches: SHA-256 (first 16 hex digits) of each batch: dtypes, shapes and bytes of its samples, in order.
        contents: SHA-256 of the sorted hashes of the single samples: equal for equal samples in any order.
        labels: count of each label, as text.
        losses: outputs of loss modules for each batch, as hexadecimal floats.
        statistics: rows of :data:`chirp_migrate.verify.observe.STATISTICS`, one per sample; only when random.
    """

    loader: int
    role: str = ""
    random: bool = False
    shuffled: bool = False
    whole: bool = False
    samples: int = 0
    batches: list[str] = field(default_factory=list)
    contents: str = ""
    labels: dict[str, int] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    statistics: list[list[float]] = field(default_factory=list)

    def mean_loss(self) -> float | None:
        """Mean of the batches' losses, or None when no loss module ran."""
        return sum(map(float.fromhex, self.losses)) / len(self.losses) if self.losses else None


@dataclass
class EntryResult:
    """One entry point in one pass.

    Attributes:
        seconds: wall time of the call; in a CACHED pass without the time it took to make the cached batches.
        fingerprint: path of each value in what the call returned → exact text or hash of the value.
        passes: what the loaders yielded (PROBE only).
    """

    seconds: float
    fingerprint: dict[str, str]
    passes: list[PassRecord]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> EntryResult:
        """Rebuild from ``asdict`` output."""
        return cls(values["seconds"], values["fingerprint"], [PassRecord(**record) for record in values["passes"]])


@dataclass
class RunResult:
    """Everything a child found out.

    Attributes:
        modes: results by mode and entry point label.
        api: what :func:`chirp_migrate.verify.api.describe_api` found for the names asked for.
        failure: one sentence when an entry point raised, else None.
    """

    modes: dict[Mode, dict[str, EntryResult]] = field(default_factory=dict)
    api: dict[str, dict[str, Signature | str]] = field(default_factory=dict)
    failure: str | None = None

    def write(self, path: Path) -> None:
        """Write as JSON, replacing the file at once."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> RunResult:
        """Read what :meth:`write` wrote.

        Raises:
            OSError, ValueError: the file is missing or not such a file.
        """
        values = json.loads(path.read_text(encoding="utf-8"))
        modes = {
            Mode(mode): {label: EntryResult.from_json(entry) for label, entry in entries.items()}
            for mode, entries in values["modes"].items()
        }
        return cls(modes, values["api"], values["failure"])


def write_json(path: Path, values: Any) -> None:
    """Write JSON next to ``path`` and move it there, so that a reader never sees half a file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(values), encoding="utf-8")
    partial.replace(path)

"""Whether training still depends on the seed: short runs with two other seeds, on each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chirp_migrate.verify.equivalence.fingerprint import Hash
from chirp_migrate.verify.spec import Trace

__all__ = ["OTHER_SEEDS", "aspects", "ignored"]

OTHER_SEEDS = (1, 2)
"""Added to the seed of the verification."""

_RESULT = "result: "


def aspects(passes: Sequence[Trace], result: Mapping[str, str]) -> dict[str, str]:
    """What of a run a seed may decide, each as text that is equal for equal runs.

    Args:
        passes: what the loaders yielded.
        result: fingerprint of what the entry point returned.
    """
    train = [record for record in passes if record.role == "train"]
    found = {
        "the order of the training samples": [str(index) for record in train for index in record.indices],
        "the training samples": [record.contents for record in train],
        "the training batches": [batch for record in train for batch in record.batches],
        "the losses": [loss for record in passes for loss in record.losses],
    }
    texts = {name: str(Hash(" ".join(parts).encode()).hexdigest())[:16] for name, parts in found.items()}
    return {**texts, **{_RESULT + path: text for path, text in result.items()}}


def ignored(before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]) -> str | None:
    """What two seeds decide before and not after; None when every seed still counts.

    Single values of a result may be equal by chance (an accuracy, for one), so they count together only.
    """
    if len(before) != 2 or len(after) != 2:
        return None
    varied = [name for name in before[0] if before[0][name] != before[1].get(name)]
    fixed = [name for name in varied if name in after[0] and after[0][name] == after[1].get(name)]
    named = [name for name in fixed if not name.startswith(_RESULT)]
    if named:
        return named[0]
    results = [name for name in varied if name.startswith(_RESULT)]
    return "the results" if results and len([n for n in fixed if n.startswith(_RESULT)]) == len(results) else None

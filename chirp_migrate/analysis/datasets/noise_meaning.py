"""Whether a class draws the same noise as the shipped transform, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from chirp_migrate.analysis.datasets.augmenter_grammar import (
    DrawsOtherwise,
    Terms,
    assigned_pairs,
    first_line,
    methods_of,
    parts_by_gate,
    taking_one_sample,
)


def adds_noise_like_gaussian_noise(class_source: str) -> tuple[str, ...]:
    """What the decorator ``adds_noise`` must say of the class, so that the shipped ``GaussianNoise`` does what it does.

    With probability 1 - p the sample is returned; else ``clamp(x + randn_like(x) * std, 0, 1)``.

    Raises:
        DrawsOtherwise: where that is not certain; the message says why.
    """
    x, body = taking_one_sample(methods_of(class_source)["forward"])
    *steps, last = _work(x, body)
    if not isinstance(last, ast.Return) or last.value is None:
        raise DrawsOtherwise(f"it does `{first_line(last)}`")
    names: dict[str, ast.expr] = {}
    for statement in steps:
        [(target, value), *more] = assigned_pairs(statement)
        if more or not isinstance(target, ast.Name) or target.id in {x, *names}:
            raise DrawsOtherwise(f"it does `{first_line(statement)}`")
        names[target.id] = Terms(names).written(value)
    noisy = f"{x} + torch.randn_like({x}) * self.std"
    ends = ("0, 1", "min=0, max=1", "0.0, 1.0", "min=0.0, max=1.0")
    results = [text for end in ends for text in (f"torch.clamp({noisy}, {end})", f"({noisy}).clamp({end})")]
    loads = (one for statement in (*steps, last) for one in ast.walk(statement) if isinstance(one, ast.Name))
    unread = names.keys() - {one.id for one in loads if isinstance(one.ctx, ast.Load)}
    if unread or Terms(names).text(last.value) not in map(Terms({}).text, results):
        raise DrawsOtherwise("its result is not `clamp(x + randn_like(x) * std, 0, 1)`")
    return ()


def _work(x: str, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that a gate which comes first lets run, their ``return`` the last."""
    before, work, left = parts_by_gate(body)
    if before:
        raise DrawsOtherwise("it is not gated by one `random.random() > self.p`")
    if not work or [ast.unparse(one) for one in left] != [f"return {x}"]:
        raise DrawsOtherwise("its gate does not return the sample as it is")
    end = next((place for place, one in enumerate(work) if isinstance(one, ast.Return)), len(work))
    return work[: end + 1]

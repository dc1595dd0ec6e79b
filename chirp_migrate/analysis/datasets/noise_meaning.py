"""Whether a class draws the same noise as the shipped transform, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from chirp_migrate.analysis.datasets.augmenter_grammar import (
    DrawsOtherwise,
    assigned_pairs,
    either_sum,
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
        names[target.id] = value
    noise = (f"torch.randn_like({x}) * self.std", f"self.std * torch.randn_like({x})")
    sums = [text for one in noise for text in either_sum(x, one)]
    ends = ("0, 1", "min=0, max=1", "0.0, 1.0", "min=0.0, max=1.0")
    results = {text for one in sums for end in ends for text in (f"torch.clamp({one}, {end})", f"({one}).clamp({end})")}
    result = _expanded(last.value, names)
    if names or result not in results:  # what is left in names was never used
        raise DrawsOtherwise("its result is not `clamp(x + randn_like(x) * std, 0, 1)`")
    return ()


def _expanded(value: ast.expr, names: dict[str, ast.expr]) -> str:
    """The text of ``value`` with ``names`` replaced by what they stand for; those used are removed."""

    class Expand(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id not in names:
                return node
            found: ast.expr = self.visit(names.pop(node.id))
            return found

    return ast.unparse(Expand().visit(ast.parse(ast.unparse(value), mode="eval").body))


def _work(x: str, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that a gate which comes first lets run, their ``return`` the last."""
    before, work, left = parts_by_gate(body)
    if before:
        raise DrawsOtherwise("it is not gated by one `random.random() > self.p`")
    if not work or [ast.unparse(one) for one in left] != [f"return {x}"]:
        raise DrawsOtherwise("its gate does not return the sample as it is")
    end = next((place for place, one in enumerate(work) if isinstance(one, ast.Return)), len(work))
    return work[: end + 1]

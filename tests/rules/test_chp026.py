"""Copies from the device that a loop only collects are listed; nothing is rewritten."""

from __future__ import annotations

import pytest
from rule_programs import sums
from support import migrate, reports


@pytest.mark.parametrize(
    "body",
    [
        "sink.append(out.cpu())",
        "sink.append(out.argmax(1).detach().cpu().numpy())",
        "sink.extend(out.argmax(1).tolist())",
        "sink += out.argmax(1).tolist()",
        "sink += [out.cpu()]",
        "sink += list(y.cpu().numpy())",
        "sink = torch.cat([sink, out.cpu()])",
        "p = out.cpu().numpy()\nsink.append(p)",
        "sink.append((out.cpu(), 3))",
        "for a, b in zip(y.cpu().numpy(), out.argmax(1).cpu().numpy()):\n    sink[a, b] += 1",
    ],
)
def test_copies_that_are_only_collected_are_listed(body: str) -> None:
    after, findings = migrate("CHP026", sums(body))
    (message,) = reports(findings)
    assert after == sums(body) and "every step waits for the GPU in" in message and "after the loop" in message


@pytest.mark.parametrize(
    "body",
    [
        "p = out.cpu().numpy()\nsink.append(p.mean())\nsink(p)",
        "sink(out.cpu())",
        "np.save(sink, out.cpu().numpy())",
        "sink.append(out)",
        "sink.append(data.cpu())",
        "sink(torch.cat([sink, out.cpu()]))",
        "if step % 10 == 0:\n    sink.append(out.cpu())",
        "sink.append(x.shape)",
    ],
)
def test_copies_that_a_step_needs_are_not_spoken_of(body: str) -> None:
    assert migrate("CHP026", sums(body)) == (sums(body), [])

"""Numbers that every step reads from the device are listed; nothing is rewritten."""

from __future__ import annotations

import pytest
from rule_programs import sums
from support import migrate, reports


@pytest.mark.parametrize(
    "body",
    [
        "if step % 100 == 0:\n    print(loss.item())",
        "if batch_idx == 0:\n    print(loss.item())",
        "if sink.verbose:\n    print(loss.item())",
        "try:\n    pass\nexcept ValueError:\n    print(loss.item())",
        "seen += int(x.size(0)) + float(len(y))",
        "host = out.cpu()\nseen += host.sum().item()",
        "seen += sink.mean().item()",
        "def g():\n    return loss.item()",
        "return loss.item()",
    ],
)
def test_what_does_not_wait_in_every_step_is_not_spoken_of(body: str) -> None:
    assert migrate("CHP025", sums(body)) == (sums(body), [])


def test_on_the_cpu_nothing_waits() -> None:
    text = sums("total += loss.item()").replace("x, y = x.to(device), y.to(device)", "pass")
    assert migrate("CHP025", text) == (text, [])


@pytest.mark.parametrize(
    "body",
    [
        "total += loss.item() * x.size(0)",
        "hits += int((out.argmax(1) == y).sum())",
        "sink.total += loss.item()",
        "for i, part in enumerate(out):\n    seen += part.item()",
        "if (last := loss):\n    seen += last.item()",
        "last: object = loss\nseen += last.item()",
        "sink.append(loss.item())",
        "last = loss.item()",
        "if loss.item() > 3:\n    break",
        "sink.update(loss.item(), len(y))",
        "sink.set_postfix(loss=float(loss))",
        "print(f'{loss.item():.3f}')",
        "parts = []\nfor _ in sink:\n    parts.append(loss)\nsink.update(sum(parts).item())",
    ],
)
def test_numbers_that_every_step_reads_are_listed_with_what_to_do(body: str) -> None:
    after, findings = migrate("CHP025", sums(body))
    (message,) = reports(findings)
    assert after == sums(body) and "waits for the GPU in `" in message and "`.item()` after the loop" in message


def test_a_loop_has_one_finding_for_all_its_numbers() -> None:
    _, findings = migrate("CHP025", sums("total += loss.item()\nsink.append(float(loss))\nprint(loss.item())"))
    (message,) = reports(findings)
    assert "in `loss.item()` and `float(loss)`; " in message

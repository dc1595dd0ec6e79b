"""Workers that are forked beside CUDA, and samples made on the GPU, are spoken of; nothing is rewritten."""

from __future__ import annotations

import textwrap

import pytest
from rule_programs import advice, dataset


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("model.cuda()\nDataLoader(x, num_workers=2, multiprocessing_context='fork')", True),
        ("DataLoader(x, num_workers=2, multiprocessing_context='fork')\nmodel.to('cuda')", True),
        ("torch.cuda.set_device(0)\nctx = multiprocessing.get_context('fork')\nf(multiprocessing_context=ctx)", True),
        (
            "d = torch.device('cuda:0')\nmodel.to(d)\nf(multiprocessing_context=multiprocessing.get_context('fork'))",
            True,
        ),
        ("model.cuda()\nmultiprocessing.set_start_method('fork', force=True)", True),
        ("model.cuda()\ntorch.multiprocessing.set_start_method('fork')", True),
        ("model.cuda()\nDataLoader(x, num_workers=2, multiprocessing_context='spawn')", False),
        ("model.cuda()\nDataLoader(x, num_workers=2)", False),
        ("model.to('cpu')\nDataLoader(x, multiprocessing_context='fork'), 'cuda'", False),
        ("torch.cuda.is_available()\nDataLoader(x, multiprocessing_context='fork')", False),
        ("torch.cuda.is_available()\nmultiprocessing.set_start_method('fork')", False),
        ("def g():\n    model.cuda()\nDataLoader(x, multiprocessing_context='fork')", False),
    ],
)
def test_forking_beside_cuda(body: str, found: bool) -> None:
    said = advice("CHP019", "def train(model, x):\n" + textwrap.indent(body, "    ") + "\n")
    assert ["workers are forked after CUDA was used" in one for one in said] == ([True] if found else [])


@pytest.mark.parametrize(
    ("init", "getitem", "found"),
    [
        ("self.x = x", "return self.x[i].cuda()", True),
        ("self.x = x", "return self.x[i].to('cuda', non_blocking=True)", True),
        ("self.device = 'cuda' if x else 'cpu'", "return self.x[i].to(self.device)", True),
        ("self.x = x", "return torch.tensor(self.x[i], device='cuda:0')", True),
        ("self.device = x", "return self.x[i].to(self.device), 'cuda'", False),
        ("self.x = x.cuda()", "return self.x[i]", False),
        ("self.x = x", "return self.x[i].to(torch.float), 'cuda'", False),
    ],
)
def test_samples_made_on_the_gpu(init: str, getitem: str, found: bool) -> None:
    said = advice("CHP019", dataset(init, getitem))
    assert ["moves samples to the GPU in `__getitem__`" in one for one in said] == ([True] if found else [])

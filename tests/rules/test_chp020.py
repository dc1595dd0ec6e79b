"""Scripts that spawned workers would run again are spoken of; nothing is rewritten."""

from __future__ import annotations

import pytest
from rule_programs import advice

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.syntax.project import Project


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("loader = DataLoader(x, num_workers=2)\nfor b in loader:\n    pass", 1),
        ("loader = DataLoader(x, num_workers=args.workers)\nfor e in range(3):\n    train(model, loader)", 1),
        ("for n, b in enumerate(DataLoader(x, num_workers=2)):\n    pass", 1),
        ("a, b = DataLoader(x, num_workers=2), DataLoader(x, num_workers=2)\ntrain(a, b)", 2),
        ("def main():\n    for b in DataLoader(x, num_workers=2):\n        pass\n\nmain()", 1),
        ("def make():\n    return DataLoader(x, num_workers=2)\n\nloader = make()\ntrain(loader)", 1),
        ("loader = DataLoader(x, num_workers=2)\nfirst = [b for b in loader]", 1),
        ("if args.train:\n    for b in DataLoader(x, num_workers=2):\n        pass", 1),
        ("loader = DataLoader(x, num_workers=0)\nfor b in loader:\n    pass", 0),
        ("n = 0\nloader = DataLoader(x, num_workers=n)\nfor b in loader:\n    pass", 0),
        ("loader = DataLoader(x)\nfor b in loader:\n    pass", 0),
        ("loader = DataLoader(x, num_workers=2)\nprint(len(loader))", 0),
        ("def main():\n    for b in DataLoader(x, num_workers=2):\n        pass\n", 0),
        (
            "def main():\n    for b in DataLoader(x, num_workers=2):\n        pass\n\n"
            "if __name__ == '__main__':\n    main()",
            0,
        ),
        ("if '__main__' == __name__:\n    for b in DataLoader(x, num_workers=2):\n        pass", 0),
        ("for b in DataLoader(x, num_workers=2, multiprocessing_context='fork'):\n    pass", 0),
    ],
)
def test_scripts_without_a_guard(text: str, found: int) -> None:
    said = advice("CHP020", f"{text}\n")
    assert len(said) == found and all('`if __name__ == "__main__":`' in one for one in said)


def test_a_guard_matters_for_the_factory_but_not_for_notebooks() -> None:
    factory = "from chirpid_patch import OptimalDataLoaderFactory\n"
    text = "for b in OptimalDataLoaderFactory.create_training_loader(x, 8, num_workers=4):\n    pass\n"
    assert len(advice("CHP020", factory + text)) == 1
    assert advice("CHP020", factory + text, path="a.ipynb") == []


DATA = (
    "from torch.utils.data import DataLoader\n\n\ndef loaders(workers):\n"
    "    return DataLoader([1, 2], num_workers=workers), DataLoader([3])\n"
)

TRAIN = (
    "from data import loaders\n\n\nclass Trainer:\n    def __init__(self, workers=2):\n"
    "        self.loader, _ = loaders(workers)\n\n"
    "    def fit(self):\n        for batch in self.loader:\n            print(batch)\n"
    "\n\ndef train(workers):\n    Trainer(workers).fit()\n"
)


@pytest.mark.parametrize(
    ("main", "lines"),
    [
        ("from data import loaders\ntrain, test = loaders(2)\nfor x in train:\n    pass", [3]),
        ("from data import loaders\ntrain, test = loaders(args.workers)\nfit(train)", [3]),
        ("from train import train\ntrain(2)", [2]),
        ("import train\n\ndef main():\n    train.train(4)\n\nmain()", [6]),
        ("from train import Trainer\nTrainer().fit()", [2]),
        ("import data\nif data:\n    for x in data.loaders(2)[0]:\n        pass", [3]),
        ("from data import loaders\nif __name__ == '__main__':\n    for x in loaders(2)[0]:\n        pass", []),
        ("import train\n\ndef main():\n    train.train(4)\n\nif __name__ == '__main__':\n    main()", []),
        ("from data import loaders\ntrain, test = loaders(2)\nprint(len(train))", []),
        ("from data import loaders\nfor x in loaders(2)[1]:\n    pass", []),
        ("from train import train\ntrain(0)", []),
        ("import train\nprint(train)", []),
        ("from train import Trainer\n\ndef test_it():\n    Trainer().fit()", []),
    ],
)
def test_scripts_without_a_guard_whose_loaders_another_file_builds(main: str, lines: list[int]) -> None:
    texts = {"main.py": f"{main}\n", "data.py": DATA, "train.py": TRAIN}
    found = rewrite_text("main.py", texts["main.py"], Project(texts))[1]
    assert [one.line for one in found if one.rule == "CHP020"] == lines
    assert all('`if __name__ == "__main__":`' in one.message for one in found)
    for path in ("data.py", "train.py"):  # libraries
        assert "CHP020" not in {one.rule for one in rewrite_text(path, texts[path], Project(texts))[1]}


def test_a_module_that_trains_when_it_is_imported_is_found_whoever_imports_it() -> None:
    job = "from train import train\n\ntrain(2)\n"
    texts = {"main.py": "import job\n", "job.py": job, "data.py": DATA, "train.py": TRAIN}
    found = [
        one for path in texts for one in rewrite_text(path, texts[path], Project(texts))[1] if one.rule == "CHP020"
    ]
    assert [(one.path, one.line) for one in found] == [("job.py", 3)]

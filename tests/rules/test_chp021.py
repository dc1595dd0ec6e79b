"""Validation that never sees some samples is spoken of; nothing is rewritten."""

from __future__ import annotations

import pytest
from rule_programs import advice


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("DataLoader(x, batch_size=64, shuffle=False, drop_last=True)", "up to 63 samples at the end"),
        ("tud.DataLoader(x, 2, False, drop_last=True)", "up to 1 sample at the end"),
        ("DataLoader(val_set, batch_size=n, drop_last=True)", "up to batch_size - 1 samples"),
        ("DataLoader(val_set, drop_last=True, **options)", "up to batch_size - 1 samples"),
        ("valLoader = DataLoader(x, batch_size=8, drop_last=True)", "up to 7 samples"),
        ("val: DataLoader = DataLoader(x, batch_size=8, drop_last=True)", "up to 7 samples"),
        ("DataLoader(Clips(), batch_size=8, shuffle=False, drop_last=True)", "up to 7 samples"),
        ("m.x = Clips()\nDataLoader(m.x, batch_size=8, shuffle=False, drop_last=True)", "up to 7 samples"),
        ("DataLoader(val_set, batch_size=8, sampler=None, shuffle=None, drop_last=True)", "up to 7 samples"),
        ("Factory.create_training_loader(x, 8, shuffle=False, drop_last=True)", "up to 7 samples"),
        ("Factory.create_validation_loader(x, 8, drop_last=True)", "ignores `drop_last=True`, and warns"),
        ("Factory.create_test_loader(x, 8, drop_last=True)", "`create_test_loader` ignores"),
    ],
)
def test_samples_that_are_never_seen(call: str, lost: str) -> None:
    header = "from chirpid_patch import OptimalDataLoaderFactory as Factory\nclass Clips(Dataset): ...\n"
    (message,) = advice("CHP021", f"{header}{call}\n")
    assert lost in message


@pytest.mark.parametrize(
    "call",
    [
        "DataLoader(x, batch_size=64, shuffle=True, drop_last=True)",
        "DataLoader(x, batch_size=64, shuffle=args.shuffle, drop_last=True)",
        "DataLoader(x, batch_size=64, shuffle=False, drop_last=args.drop)",
        "DataLoader(x, batch_size=64, shuffle=False, drop_last=False)",
        "DataLoader(val_set, batch_size=64, sampler=s, drop_last=True)",
        "DataLoader(val_set, batch_sampler=s, drop_last=True)",
        "DataLoader(val_set, batch_size=1, shuffle=False, drop_last=True)",
        "DataLoader(val_set, batch_size=None, drop_last=True)",
        "DataLoader(val_set, drop_last=True)",
        "DataLoader(batch_size=64, shuffle=False, drop_last=True)",
        "DataLoader(x, batch_size=64, shuffle=False, drop_last=True, **options)",
        "DataLoader(x, batch_size=64, drop_last=True)",
        "DataLoader(train_set, batch_size=64, shuffle=False, drop_last=True)",
        "train_loader = DataLoader(x, batch_size=64, shuffle=False, drop_last=True)",
        "train_loader = DataLoader(val_set, batch_size=64, shuffle=False, drop_last=True)",
        "DataLoader(contrastive, batch_size=64, drop_last=True)",
        "DataLoader(Stream(), batch_size=64, shuffle=False, drop_last=True)",
        "s = Stream()\nDataLoader(s, batch_size=64, shuffle=False, drop_last=True)",
        "m.x = Stream()\nDataLoader(m.x, batch_size=64, shuffle=False, drop_last=True)",
        "Factory.create_training_loader(val_set, 8, drop_last=True)",
        "OtherLoader(val_set, batch_size=64, shuffle=False, drop_last=True)",
    ],
)
def test_dropping_samples_in_training_is_not_spoken_of(call: str) -> None:
    header = "from chirpid_patch import OptimalDataLoaderFactory as Factory\nclass Stream(IterableDataset): ...\n"
    assert advice("CHP021", f"{header}{call}\n") == []


def test_functions_say_what_a_loader_is_for() -> None:
    method = "class M:\n    def {}(self):\n        return DataLoader(self.x, batch_size=8, drop_last=True)\n"
    said = {
        name: len(advice("CHP021", method.format(name))) for name in ("val_dataloader", "test_dataloader", "test_it")
    }
    assert said == {"val_dataloader": 1, "test_dataloader": 1, "test_it": 0}

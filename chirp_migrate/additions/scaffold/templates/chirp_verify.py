"""The training that `chirp-migrate verify` runs, to measure whether the migrated training is faster and unchanged.

Fill in the lines marked FILL IN, then run `chirp-migrate verify` on this folder. `verify` runs this file in a copy of
the folder: once with the code from before the migration, and once with the present code, each in a separate process. It
times the calls that `workload` returns. The time that `workload` itself takes does not count.

`verify` finds this file without settings. The table [tool.chirp-migrate.verify] in pyproject.toml may set the amount of
training: samples, epochs, batch-size, folds, classes, shape, seed and data. Each key is also an option of `verify`.
"""

import torch
from torch.utils.data import TensorDataset

# FILL IN: your training function.
# from trainer.training import train


def workload(sizes):
    """Return a dictionary with the names and functions of the training calls.

    `sizes` has the amount of training: `sizes.samples`, `sizes.epochs`, `sizes.batch_size`, `sizes.folds`,
    `sizes.classes`, `sizes.shape` (channels, height, width), `sizes.seed`, and `sizes.data` (the path passed as
    --data, or None). The warm-up run gets smaller sizes. `verify` seeds every random generator before it calls
    `workload`, and again before each training call. It calls `workload` again for each training call, so that each
    one starts from the same state.
    """
    # FILL IN: your dataset; or keep this dataset of random images in memory.
    generator = torch.Generator().manual_seed(sizes.seed)
    images = torch.rand(sizes.samples, *sizes.shape, generator=generator)
    labels = torch.randint(sizes.classes, (sizes.samples,), generator=generator)
    dataset = TensorDataset(images, labels)

    def train_once():
        # FILL IN: one whole training as your users run it, with its loaders. Return the results that must stay the
        # same, such as the losses of each epoch. `verify` compares them to the last bit. It detects values that differ
        # from run to run, such as times, and does not compare them.
        # return train(dataset, epochs=sizes.epochs, batch_size=sizes.batch_size)
        raise NotImplementedError(f"fill in the marked lines of chirp_verify.py ({len(dataset)} samples are ready)")

    # You may return more calls, such as {"train": train_once, "cross-validate": ...}. Each call gets its own verdict.
    return {"train": train_once}

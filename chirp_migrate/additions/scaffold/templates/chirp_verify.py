"""What `chirp-migrate verify` trains, to see whether the migrated training is faster and still the same.

Fill in the lines marked FILL IN, then run `chirp-migrate verify` on this folder. This file runs in a copy of the
folder, once with the code as it was before the migration and once with the code as it is now, each time in a process
of its own. What runs inside a call returned by `workload` is timed; what `workload` does before is not.
"""

import torch
from torch.utils.data import TensorDataset

# FILL IN: your training function.
# from trainer.training import train


def workload(sizes):
    """Give the training calls by name.

    `sizes` says how much to train: `sizes.samples`, `sizes.epochs`, `sizes.batch_size`, `sizes.folds`,
    `sizes.classes`, `sizes.shape` (channels, height, width), `sizes.seed`, and `sizes.data` (the path given by
    --data, or None). It asks for less in the run that warms up. Every random generator is seeded before `workload`
    and again before each call. `workload` is called anew for every call, so that each starts from the same state.
    """
    # FILL IN: your dataset, or keep this one, made of random images in memory.
    generator = torch.Generator().manual_seed(sizes.seed)
    images = torch.rand(sizes.samples, *sizes.shape, generator=generator)
    labels = torch.randint(sizes.classes, (sizes.samples,), generator=generator)
    dataset = TensorDataset(images, labels)

    def train_once():
        # FILL IN: one whole training as your users run it, with its loaders. Return what must stay the same, such
        # as the losses of each epoch; it is compared to the last bit. Values that differ from run to run (times, say)
        # are noticed and left out.
        # return train(dataset, epochs=sizes.epochs, batch_size=sizes.batch_size)
        raise NotImplementedError(f"fill in the marked lines of chirp_verify.py ({len(dataset)} samples are ready)")

    # More calls can be given, such as {"train": train_once, "cross-validate": ...}; each gets its own line and verdict.
    return {"train": train_once}

"""Find training batches in float64 for a model in float32."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording

_LEAST_BYTES = 16_384


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the dtype of training batches with the dtype of the model. The check ignores tensors under 16 KiB."""
    for loader in recording.loaders:
        for one in recording.passes_of_loader(loader):
            if not one.trains or one.parameters != "torch.float32" or not one.doubles:
                continue
            place, size = max(one.doubles.items(), key=lambda item: item[1])
            if size < _LEAST_BYTES:
                continue
            yield Problem.at(
                loader.dataset_place if loader.dataset_place.file else loader.place,
                "double-precision",
                "Batches are float64 and the model is float32, so loading moves twice as many bytes as necessary, and "
                "each step converts the batch.",
                f"batch{place} of {loader} is float64 with {size:,} bytes, and the model's parameters are float32.",
                "Convert the data to float32 once, where the dataset is built.",
            )
            break

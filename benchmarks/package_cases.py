"""Build loaders with the code of PyPI packages, on synthetic data.

If this module runs as a program, its argument is the name of a case. The program builds the loader of the case, and
runs one epoch for each line of standard input.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """A loader of a package.

    Attributes:
        name: name of the case.
        package: name of the package on PyPI.
        file: file that builds the loader.
        line: line of the call in this file.
        build: function that builds the loader; the package must be importable when it is called.
        folders: folders of the source distribution from which modules are imported.
        needs: packages that the import needs in addition to torch and the packages of this project's tests.
    """

    name: str
    package: str
    file: str
    line: int
    build: Callable[[], Any]
    folders: tuple[str, ...] = (".",)
    needs: tuple[str, ...] = ()


def _tensors(samples: int = 4096, *shape: int) -> Any:
    import torch
    from torch.utils.data import TensorDataset

    torch.manual_seed(0)
    return TensorDataset(torch.randn(samples, *(shape or (1, 28, 28))), torch.randint(0, 10, (samples,)))


def _decoded(samples: int = 2048) -> Any:
    """Return a dataset that decodes its samples one by one, like the datasets of torchvision."""
    import torch
    from torch.utils.data import Dataset

    images, labels = _tensors(samples).tensors

    class Decoded(Dataset[Any]):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> Any:
            return torch.clamp((images[index] - 0.1307) / 0.3081, -3, 3), int(labels[index])

    return Decoded()


class _FirstBatchReached(BaseException):
    """Ends code at its first batch. ``except Exception`` does not catch a ``BaseException``."""


def _end_at_first_batch(*_: Any) -> None:
    raise _FirstBatchReached


def _loader_of(call: Callable[[], Any]) -> Any:
    """Run ``call`` until it reads the first batch, and return the loader in the local variables of its functions."""
    from torch.utils.data import DataLoader

    try:
        call()
    except _FirstBatchReached as reached:
        frames = [frame for frame, _ in traceback.walk_tb(reached.__traceback__)]
        return next(one for frame in frames for one in frame.f_locals.values() if isinstance(one, DataLoader))
    raise RuntimeError("the call read no batch")


def _opacus_memory() -> Any:
    from opacus.utils.batch_memory_manager import wrap_data_loader
    from torch.utils.data import DataLoader

    optimizer: Any = SimpleNamespace(signal_skip_step=lambda **_: None)
    return wrap_data_loader(data_loader=DataLoader(_tensors(), batch_size=128), max_batch_size=64, optimizer=optimizer)


def _opacus_generator() -> Any:
    import torch
    from opacus.data_loader import switch_generator
    from torch.utils.data import DataLoader

    loader = DataLoader(_tensors(), batch_size=64, shuffle=True, generator=torch.Generator())
    return switch_generator(data_loader=loader, generator=torch.Generator())


def _captum_batches() -> Any:
    from captum.concept._utils.data_iterator import dataset_to_dataloader

    return dataset_to_dataloader(_tensors(), 64)


def _lightning() -> Any:
    from lightning.pytorch.core.datamodule import LightningDataModule

    return LightningDataModule.from_datasets(train_dataset=_tensors(), batch_size=64).train_dataloader()


def _deepctr() -> Any:
    import numpy as np
    from deepctr_torch.inputs import DenseFeat
    from deepctr_torch.models.basemodel import BaseModel

    columns = [DenseFeat(f"x{n}", 1) for n in range(8)]
    rng = np.random.default_rng(0)
    inputs = {one.name: rng.random(4096, dtype=np.float32) for one in columns}
    model = BaseModel(columns, columns)
    model.compile("adam", "binary_crossentropy")
    model.register_forward_pre_hook(_end_at_first_batch)
    return _loader_of(lambda: model.fit(inputs, rng.integers(0, 2, 4096), batch_size=64, verbose=0))


def _pyod() -> Any:
    import numpy as np
    from pyod.models.dif import DIF

    rows = np.random.default_rng(0).random((4096, 8), dtype=np.float32)
    model: Any = SimpleNamespace(batch_size=64, device="cpu")
    return _loader_of(lambda: DIF._deep_representation(model, _end_at_first_batch, rows))


def _torchtuples() -> Any:
    from torchtuples.tupletree import make_dataloader

    return make_dataloader(_tensors(4096, 8).tensors, 64, True, torch_ds_dl=True)


def _metric_train() -> Any:
    from pytorch_metric_learning.utils.common_functions import get_train_dataloader

    return get_train_dataloader(_decoded(), 64, None, 0, None)


def _metric_eval() -> Any:
    from pytorch_metric_learning.utils.common_functions import get_eval_dataloader

    return get_eval_dataloader(_decoded(), 64, 0, None)


def _pythae(which: str) -> Any:
    from pythae.data.datasets import BaseDataset
    from pythae.trainers import BaseTrainer

    images, labels = _tensors(2048).tensors
    config = SimpleNamespace(
        per_device_train_batch_size=64,
        per_device_eval_batch_size=64,
        train_dataloader_num_workers=0,
        eval_dataloader_num_workers=0,
    )
    trainer = SimpleNamespace(distributed=False, training_config=config)
    return getattr(BaseTrainer, f"get_{which}_dataloader")(trainer, BaseDataset(images, labels))


def _tabular(which: str) -> Any:
    import numpy as np
    import pandas as pd
    from pytorch_tabular.tabular_datamodule import TabularDatamodule, TabularDataset

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{n}": rng.random(2048) for n in range(8)} | {"y": rng.integers(0, 2, 2048)})
    dataset = TabularDataset(frame, "classification", [f"x{n}" for n in range(8)], None, "y")
    config = SimpleNamespace(num_workers=0, pin_memory=False, dataloader_kwargs={})
    module = SimpleNamespace(
        train_dataset=dataset, validation_dataset=dataset, batch_size=64, train_sampler=None, config=config
    )
    return getattr(TabularDatamodule, f"{which}_dataloader")(module)


def _forecasting() -> Any:
    import numpy as np
    import pandas as pd
    from pytorch_forecasting import TimeSeriesDataSet

    frame = pd.DataFrame({"t": np.tile(np.arange(60), 8), "g": np.repeat(np.arange(8), 60).astype(str)})
    frame["y"] = np.sin(frame["t"] / 5.0)
    dataset = TimeSeriesDataSet(
        frame, "t", "y", ["g"], max_encoder_length=12, max_prediction_length=3, time_varying_unknown_reals=["y"]
    )
    return dataset.to_dataloader(train=False, batch_size=32)


_SOURCE = ("src",)
CASES = (
    Case("captum-batches", "captum", "captum/concept/_utils/data_iterator.py", 63, _captum_batches),
    Case(
        "deepctr-fit",
        "deepctr-torch",
        "deepctr_torch/models/basemodel.py",
        209,
        _deepctr,
        (".",),
        ("requests", "urllib3", "idna", "charset-normalizer", "certifi"),
    ),
    Case(
        "lightning-datamodule",
        "lightning",
        "src/lightning/pytorch/core/datamodule.py",
        117,
        _lightning,
        _SOURCE,
        ("lightning-utilities", "torchmetrics"),
    ),
    Case("pyod-dif", "pyod", "pyod/models/dif.py", 273, _pyod, (".",), ("numba", "llvmlite")),
    Case("torchtuples-make", "torchtuples", "torchtuples/tupletree.py", 360, _torchtuples),
    Case("opacus-generator", "opacus", "opacus/data_loader.py", 407, _opacus_generator),
    Case("opacus-memory", "opacus", "opacus/utils/batch_memory_manager.py", 102, _opacus_memory),
    *(
        Case(
            f"metric-learning-{which}",
            "pytorch-metric-learning",
            "src/pytorch_metric_learning/utils/common_functions.py",
            line,
            build,
            _SOURCE,
        )
        for which, line, build in (("train", 184, _metric_train), ("eval", 197, _metric_eval))
    ),
    *(
        Case(
            f"pythae-{which}",
            "pythae",
            "src/pythae/trainers/base_trainer/base_trainer.py",
            line,
            lambda which=which: _pythae(which),
            _SOURCE,
            ("pydantic", "pydantic-core", "annotated-types", "typing-inspection"),
        )
        for which, line in (("train", 187), ("eval", 205))
    ),
    *(
        Case(
            f"pytorch-tabular-{which}",
            "pytorch-tabular",
            "src/pytorch_tabular/tabular_datamodule.py",
            line,
            lambda which=which: _tabular(which),
            _SOURCE,
            ("omegaconf", "antlr4-python3-runtime", "pytorch-lightning", "lightning-utilities", "torchmetrics",
             "scikit-base", "einops"),
        )
        for which, line in (("train", 815), ("val", 835))
    ),
    Case(
        "pytorch-forecasting",
        "pytorch-forecasting",
        "pytorch_forecasting/data/timeseries/_timeseries.py",
        2661,
        _forecasting,
        (".",),
        ("lightning", "pytorch-lightning", "lightning-utilities", "torchmetrics", "scikit-base"),
    ),
)  # fmt: skip


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


def _can_pickle(loader: Any) -> bool:
    """Return whether the objects of the loader can be pickled for workers."""
    try:
        pickle.dumps((loader.dataset, loader.collate_fn, loader.worker_init_fn))
    except Exception:  # objects of packages may raise any error
        return False
    return True


def _epochs(case: Case) -> Iterator[dict[str, Any]]:
    loader = case.build()
    yield {"picklable": _can_pickle(loader)}
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), _cpu_s()
        for _batch in loader:
            pass
        yield {"wall_s": time.perf_counter() - wall, "cpu_s": _cpu_s() - cpu}


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    (asked,) = (case for case in CASES if case.name == sys.argv[1])
    for answer in _epochs(asked):
        print(json.dumps(answer), flush=True)

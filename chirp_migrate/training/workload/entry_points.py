"""Find the training functions of a project in its source code, and define the size of a training.

A function is an entry point under two conditions. The function is in one of the modules :data:`TRAINING_MODULES` in the
folder ``utils/``, and the function has parameters for data and model, such as ``dataset``, ``train_indices``,
``val_indices``, ``model_class`` and ``num_classes``. The name of the function does not matter.
A project without such functions needs a workload function (:mod:`.hook`) or a script (:mod:`.script`). This module
parses the project's source, but does not import it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from shlex import quote
from typing import Any

from chirp_migrate.console.text import pluralize
from chirp_migrate.syntax.outline import parameter_defaults
from chirp_migrate.training.errors import NoTrainingFound
from chirp_migrate.training.process.imports import project_modules

DEFAULT_WORKLOAD = "chirp_verify.py"
"""Name of a file in the project. If the file exists, its function ``workload`` is the workload function."""

TRAINING_MODULES = ("training_engine", "training_utils", "cross_validation", "util_backup", "training_core")
"""Modules in the folder ``utils/`` that may contain entry points. The entry points run in this order of modules."""

_WATCHED_SAMPLES, _WATCHED_BATCH, _WATCHED_EPOCHS = 52, 16, 2
_EPOCHS, _FOLDS_NAMED = ("num_epochs", "epochs", "max_epochs", "n_epochs"), ("k_folds", "n_splits", "folds")

_SPLIT_ATTEMPTS = 200
"""Number of random splits that the module ``training_core`` may try.

The default of this module, tens of thousands, would take long.
"""

DATA_PARAMETERS = frozenset(
    {"dataset", "features", "labels", "authors", "train_indices", "val_indices", "fold_indices", "model_class"}
)
"""Names of the parameters of training functions for the data, for its splits, and for the model."""

_MODEL = frozenset({"model_class", "num_classes"})
_SPLIT = frozenset({"dataset", "train_indices", "val_indices"}) | _MODEL
_FOLDS = frozenset({"dataset", "fold_indices"}) | _MODEL
_K_FOLD = frozenset({"dataset", "k_folds"}) | _MODEL
_ARRAYS = frozenset({"features", "labels", "config"}) | _MODEL
_FUNCTION_FORMS = (_SPLIT, _FOLDS, _K_FOLD, _ARRAYS)
_ENGINE_FORMS = {
    "run_single_fold_predefined": frozenset({"dataset", "train_indices", "val_indices"}),
    "run_single_fold_stratified": frozenset({"dataset"}),
    "run_cross_validation": frozenset({"dataset", "fold_indices"}),
}
_ENGINE_INIT = frozenset({"model_class", "num_classes", "config"})


class TrainingSource(str, Enum):
    """The kind of code that starts a training: functions of the project, a workload function (hook), or a script."""

    FOUND = "found"
    HOOK = "hook"
    SCRIPT = "script"


@dataclass(frozen=True)
class WorkloadSizes:
    """The size of a training: numbers of samples, epochs and folds, and the path of the data.

    With the defaults, each epoch has at least eight batches, even if half of the samples are validation samples, as in
    a cross-validation with two folds.

    Attributes:
        samples: number of samples (spectrograms) in the dataset. The default is not a multiple of the batch size, so
            that the last batch is short.
        shape: shape of a spectrogram, as (channels, frequency bins, time frames).
        classes: number of classes among the labels of the samples.
        epochs: number of training epochs of each entry point, in each fold.
        batch_size: number of samples in a batch.
        folds: number of folds in a cross-validation.
        seed: seed for the synthetic data. All random generators also get this seed before each entry point runs.
        data: absolute path of the user's own samples; None for synthetic spectrograms.
    """

    samples: int = 520
    shape: tuple[int, int, int] = (1, 224, 313)
    classes: int = 4
    epochs: int = 2
    batch_size: int = 32
    folds: int = 2
    seed: int = 435
    data: str | None = None

    def for_warm_up(self) -> WorkloadSizes:
        """Return the sizes of the shortest run: one epoch with a few samples. The samples keep their shape."""
        samples = max(24, 4 * self.classes * self.folds)
        return replace(self, samples=min(samples, self.samples), epochs=1, batch_size=min(self.batch_size, 8))

    def for_watched_run(self) -> WorkloadSizes:
        """Return the sizes of the run that ``verify`` records: two epochs of a few batches, with a short last batch."""
        samples = max(_WATCHED_SAMPLES, self.for_warm_up().samples)
        batch_size = min(self.batch_size, _WATCHED_BATCH)
        return replace(self, samples=min(samples, self.samples), epochs=_WATCHED_EPOCHS, batch_size=batch_size)


@dataclass(frozen=True)
class FullTrainingLength:
    """The length of the full training that the user would run.

    For training functions, the numbers are defaults in the project's source. If the source has no such default, the
    number is 100 epochs or one fold.

    Attributes:
        epochs: number of epochs in each fold.
        folds: number of folds, which train one after the other.
        assumed: whether ``epochs`` is an assumption, as for a workload function, a script, or a training function whose
            project contains no default. If the user sets the number of epochs, the number is not an assumption.
    """

    epochs: int = 100
    folds: int = 1
    assumed: bool = True

    @property
    def all_epochs(self) -> int:
        """Return the number of epochs of all folds together."""
        return self.folds * self.epochs


@dataclass(frozen=True)
class EntryPoint:
    """A function, call or script that starts a training.

    Attributes:
        module: import name of the training function's module, such as ``utils.training_engine``; an empty string for a
            workload function or script.
        name: name of the function or method, such as ``TrainingEngine.run_cross_validation``. For a workload function,
            the value is the name of a training call that the workload function returns. For a script, the value is the
            name of the script or module.
        parameters: names of the parameters of the function or method, without ``self``; an empty tuple for other entry
            points.
        hook: reference to the user's workload function, in the form ``package.module:function`` or
            ``path.py:function``. The workload function returns training calls. The value is an empty string if there is
            no workload function.
        script: command line of a Python script, as a tuple of words; an empty tuple without a script.
        own: length of the full training that the user would run.
    """

    module: str
    name: str
    parameters: tuple[str, ...] = ()
    hook: str = ""
    script: tuple[str, ...] = ()
    own: FullTrainingLength = FullTrainingLength()

    @property
    def source(self) -> TrainingSource:
        """Return what defines the training: the project's source, a workload function or a script."""
        if self.script:
            return TrainingSource.SCRIPT
        return TrainingSource.HOOK if self.hook else TrainingSource.FOUND

    @property
    def label(self) -> str:
        """Return a short unique name, such as ``training_engine.TrainingEngine.run_cross_validation``."""
        return f"{self.module.rpartition('.')[2]}.{self.name}" if self.module else self.name


@dataclass(frozen=True)
class DiscoveredEntryPoints:
    """The entry points of a project.

    Attributes:
        entry_points: the entry points, in the order in which they run.
        model: class of the model that all entry points train, such as ``utils.models:BirdCNN``; an empty string if the
            user's workload function or script chooses the model.
        left_out: sentences on functions that look like training functions but do not have the necessary parameters, and
            on modules that are missing or cannot be parsed.
        origin: original folder of the user's project. The training runs in a copy. If Python imports a module from the
            original folder instead of the copy, the command fails. An empty string switches this check off.
    """

    entry_points: tuple[EntryPoint, ...]
    model: str = ""
    left_out: tuple[str, ...] = ()
    origin: str = ""

    @property
    def source(self) -> TrainingSource:
        """Return what defines all entry points: the project's source, a workload function or a script."""
        return self.entry_points[0].source

    def describe(self, sizes: WorkloadSizes) -> str:
        """Return a sentence that describes the training, for the report."""
        if self.source is TrainingSource.SCRIPT:
            return (
                f"verify ran `{' '.join(self.entry_points[0].script)}` in a copy of each version, and ended the script "
                "after a few epochs."
            )
        amount = f"batch {sizes.batch_size}, {pluralize(sizes.epochs, 'epoch')}"
        if self.source is TrainingSource.HOOK:
            data = f", data {sizes.data}" if sizes.data else ""
            return (
                f"{pluralize(len(self.entry_points), 'training call')} of {self.entry_points[0].hook}, called "
                f"with {sizes.samples} samples, {amount}{data}."
            )
        shape = "x".join(map(str, sizes.shape))
        what = f"samples of {shape} from {sizes.data}" if sizes.data else f"synthetic spectrograms of {shape}"
        return (
            f"{sizes.samples} {what}, {pluralize(sizes.classes, 'class')}, {amount}, "
            f"{pluralize(sizes.folds, 'fold')}, {self.model}."
        )


def training_function_arguments(sizes: WorkloadSizes) -> dict[str, Any]:
    """Return the arguments of training functions, except data and model, as a dictionary: parameter → argument."""
    config = {
        "num_epochs": sizes.epochs,
        "batch_size": sizes.batch_size,
        "learning_rate": 0.001,
        "use_class_weights": True,
        "early_stopping": sizes.epochs + 1,
        "standardize": True,
        "standardize_sample_size": 1000,
        "aggregate_predictions": True,
        "test_size": 0.2,
        "random_state": 42,
        "k_folds": sizes.folds,
        "max_split_attempts": _SPLIT_ATTEMPTS,
    }
    return {
        "num_classes": sizes.classes,
        "config": config,
        "num_epochs": sizes.epochs,
        "batch_size": sizes.batch_size,
        "k_folds": sizes.folds,
        "standardize": True,
        "estop": sizes.epochs + 1,
    }


def has_entry_point_modules(root: Path) -> bool:
    """Return whether a project has a module that may contain training functions (one of :data:`TRAINING_MODULES`)."""
    return any((root / "utils" / f"{module}.py").is_file() for module in TRAINING_MODULES)


def find_entry_points(root: Path, model: str | None = None, command: str = "verify") -> DiscoveredEntryPoints:
    """Find the training functions and the model of a project.

    Args:
        root: folder of the project.
        model: class of the model to train, as ``module:ClassName``; None for the model in ``utils/models.py``.
        command: name of the command that runs the training, for error messages.

    Raises:
        NoTrainingFound: the project has no folder ``utils/``, no entry point, or no model class with a parameter
            ``num_classes``.
    """
    utils = root / "utils"
    if not utils.is_dir():
        advice = _advice_without_training(root, command)
        raise NoTrainingFound(f"{root} has no utils/ folder, so {command} finds no training functions in it: {advice}.")
    entry_points: dict[str, EntryPoint] = {}
    left_out: list[str] = []
    trees = [tree for module in TRAINING_MODULES if (tree := _parse(utils / f"{module}.py")) is not None]
    epochs = _first_integer_set(trees, _EPOCHS)
    usual = FullTrainingLength(
        epochs or FullTrainingLength.epochs, _first_integer_set(trees, _FOLDS_NAMED) or 1, assumed=epochs is None
    )
    for module in TRAINING_MODULES:
        for entry in _entry_points_of_module(utils, module, usual):
            if isinstance(entry, str):
                left_out.append(entry)
            else:  # if a name is defined twice, the last definition counts
                entry_points[entry.label] = entry
    if not entry_points:
        names = ", ".join(f"{name}.py" for name in TRAINING_MODULES)
        advice = _advice_without_training(root, command)
        raise NoTrainingFound(
            f"no entry point found under {utils}, because {names} contain no training functions: {advice}."
        )
    return DiscoveredEntryPoints(tuple(entry_points.values()), model or _find_model(utils, command), tuple(left_out))


def _advice_without_training(root: Path, command: str) -> str:
    """Return advice for a project without training functions.

    If the project has exactly one script, the advice contains a command that runs this script.
    """
    scripts = [path for path in project_modules(root).values() if _is_script(path)]
    script = scripts[0].relative_to(root).as_posix() if len(scripts) == 1 else "train.py"
    return (
        f"run a script with `chirp-migrate {command} {quote(str(root))} -- python {quote(script)}`, or run "
        f"`chirp-migrate init-workload {quote(str(root))}` and list the training calls in the file that it writes"
    )


def _is_script(path: Path) -> bool:
    """Return whether the top level of a file has an ``if`` statement that tests ``__name__``, as scripts have."""
    tree = _parse(path)
    return tree is not None and any(
        isinstance(one, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(one.test))
        for one in tree.body
    )


def _parse(path: Path) -> ast.Module | None:
    if not path.is_file():
        return None
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # unreadable, or too complex to parse
        return None


def _entry_points_of_module(utils: Path, name: str, usual: FullTrainingLength) -> Iterator[EntryPoint | str]:
    """Yield the training functions of a module, and a sentence for each similar function that lacks parameters.

    If the module is missing or cannot be parsed, yield only a sentence about this problem.

    Args:
        utils: folder ``utils/`` of the project.
        name: name of the module, without the package ``utils``.
        usual: numbers of epochs and folds for functions that do not set these numbers.
    """
    path, module = utils / f"{name}.py", f"utils.{name}"
    tree = _parse(path)
    if tree is None:
        yield f"utils/{name}.py: {'cannot be parsed' if path.is_file() else 'the project has no such file'}"
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "TrainingEngine":
            yield from _entry_points_of_engine(module, node, usual)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            parameters = _parameters(node)
            if any(form <= set(parameters) for form in _FUNCTION_FORMS):
                yield EntryPoint(module, node.name, parameters, own=_own_run(node, parameters, usual))
            elif "training" in node.name or "cross_val" in node.name:
                yield f"{module}.{node.name}: it does not have the parameters of a training function"


def _own_run(function: ast.FunctionDef, parameters: tuple[str, ...], usual: FullTrainingLength) -> FullTrainingLength:
    """Return the length of the user's full training with a function.

    If the function sets no number of epochs, the number comes from ``usual``. If the function sets no number of folds,
    the number comes from ``usual`` for a function with the parameter ``fold_indices``, and is 1 for other functions.
    """
    epochs = _first_integer_set([function], _EPOCHS)
    folds = _first_integer_set([function], _FOLDS_NAMED)
    if folds is None:
        folds = usual.folds if "fold_indices" in parameters else 1
    return FullTrainingLength(epochs or usual.epochs, folds, assumed=epochs is None and usual.assumed)


def _first_integer_set(within: Iterable[ast.AST], names: Sequence[str]) -> int | None:
    """Return the first positive integer that the code sets for one of ``names``; None without such an integer.

    The code sets an integer as a dictionary value (``{"epochs": 5}``) or as a default (``def train(epochs=5)``).
    """
    for node in (node for one in within for node in ast.walk(one)):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.FunctionDef):
            pairs += parameter_defaults(node.args)
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            pairs += [(key, value) for key, value in zip(keys, node.values, strict=True) if isinstance(key, str)]
        for name, value in pairs:
            if name in names and isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
                return value.value
    return None


def _entry_points_of_engine(module: str, engine: ast.ClassDef, usual: FullTrainingLength) -> Iterator[EntryPoint | str]:
    methods = {node.name: _parameters(node)[1:] for node in engine.body if isinstance(node, ast.FunctionDef)}
    if not set(methods.get("__init__", ())) >= _ENGINE_INIT:
        yield f"{module}.TrainingEngine: its constructor does not take (model_class, num_classes, config)"
        return
    for name, needed in _ENGINE_FORMS.items():
        if needed <= set(methods.get(name, ())):
            folds = usual.folds if "fold_indices" in needed else 1
            yield EntryPoint(module, f"TrainingEngine.{name}", methods[name], own=replace(usual, folds=folds))
        else:
            yield f"{module}.TrainingEngine.{name} is missing, or lacks parameters that a training function needs"


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    arguments = function.args
    return tuple(a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])


def _find_model(utils: Path, command: str) -> str:
    path = utils / "models.py"
    tree = _parse(path)
    candidates = [] if tree is None else list(_model_classes(tree))
    if candidates:
        return f"utils.models:{'BirdCNN' if 'BirdCNN' in candidates else candidates[0]}"
    raise NoTrainingFound(
        f"no model found in {path}, which has no class with the parameter num_classes: name a class of another module "
        f"with `verify --model package.module:ClassName`, or {_advice_without_training(utils.parent, command)}."
    )


def _model_classes(tree: ast.Module) -> Iterator[str]:
    """Yield the names of classes that have a base class and ``num_classes`` as the first constructor parameter."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.bases:
            constructors = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
            if any(_parameters(constructor)[1:2] == ("num_classes",) for constructor in constructors):
                yield node.name

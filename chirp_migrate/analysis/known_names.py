"""Resolve names, and list the known names of loaders, datasets, samplers and transforms in libraries.

Patterns of names that only a single module needs are defined in that module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_resolution import find_base_classes, resolve_ast_node, resolve_node
from chirp_migrate.syntax.name_uses import find_descendants
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.word_index import words_of


def join_name_patterns(*patterns: re.Pattern[str] | str) -> re.Pattern[str]:
    """Return a regular expression that matches if one of ``patterns`` matches."""
    return re.compile("|".join(one if isinstance(one, str) else one.pattern for one in patterns))


# Loaders.
FACTORY = "OptimalDataLoaderFactory"
#: A class whose method `prepare` builds new loaders from the loaders that it receives.
ACCELERATOR = re.compile(r"accelerate\.(accelerator\.)?Accelerator")
#: Functions, and methods of the factory, that build loaders.
FACTORY_FUNCTIONS = ("create_loader", "create_training_loader", "create_validation_loader", "create_test_loader")
#: Qualified names of the functions and methods that build loaders. The group ``role`` is the purpose of the loader.
FACTORY_METHOD = re.compile(
    rf"chirpid_patch\.(factory\.)?({FACTORY}\.)?create_(?P<role>training_|validation_|test_|)loader"
)
#: PyTorch's ``DataLoader`` itself.
TORCH_LOADER = re.compile(r"torch\.utils\.data\.(dataloader\.)?DataLoader")
#: Parameters of ``torch.utils.data.DataLoader``, in their order.
TORCH_POSITIONAL = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory"),
    *("drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator"),
)
#: Classes of loaders.
LOADER = join_name_patterns(TORCH_LOADER, r"chirpid_patch\.BatchedDataLoader")
#: Calls that do not return loaders. A variable with the result of such a call is not a loader, even if the name of the
#: variable is typical of loaders.
NO_LOADER = re.compile(r"(builtins|numpy|pandas|collections|json|csv|torch\.(?!utils\.data\b)\w+)(\..*)?")

# Datasets.
_SHIPPED_DATASET = r"chirpid_patch\.WorkerSafe\w+"
_PART_OF_DATASET = r"torch\.utils\.data\.(dataset\.)?(Subset|random_split)"
TORCHVISION_DATASET = re.compile(r"torchvision\.datasets\.\w+")
#: PyTorch's ``Dataset`` itself.
TORCH_DATASET = re.compile(r"torch\.utils\.data\.(dataset\.)?Dataset")
#: Classes of datasets with samples by index, and functions that split a dataset.
MAP_DATASET = join_name_patterns(
    r"torch\.utils\.data\.(dataset\.)?(Tensor|Concat|Stack)?Dataset",
    _PART_OF_DATASET,
    TORCHVISION_DATASET,
    _SHIPPED_DATASET,
)
#: Classes of datasets that are iterated over.
ITERABLE_DATASET = re.compile(r"torch\.utils\.data\.(\w+\.)*(IterableDataset|ChainDataset|IterDataPipe)")
#: Classes of datasets, and functions that split a dataset.
DATASET = join_name_patterns(
    r"torch\.utils\.data\.(dataset\.)?\w*Dataset", _PART_OF_DATASET, TORCHVISION_DATASET, _SHIPPED_DATASET
)
_DATASET_CLASSES = ("Dataset", "Subset", "DataPipe", "ImageFolder", "WorkerSafe")
#: Words in the names of dataset classes.
DATASET_WORDS = (*_DATASET_CLASSES, "torchvision")
#: Functions and classes whose first argument is a dataset.
TAKES_DATASET = join_name_patterns(LOADER, FACTORY_METHOD, _PART_OF_DATASET, _SHIPPED_DATASET)
#: Calls that do not return datasets. A variable with the result of such a call is not a dataset, even if the name of
#: the variable is typical of datasets.
NO_DATASET = re.compile(
    r"(builtins|numpy|pandas|collections|itertools|json|csv)\..*|typing\.(List|Dict|Tuple|Set|Mapping|Sequence|Iterable)"
    r"|torch\.(Tensor|\w*tensor|stack|cat|zeros|ones|arange|rand\w*|empty|full)"
)

#: Datasets of Hugging Face, and functions that build them.
HUGGING_FACE_DATASET = re.compile(
    r"datasets\.(\w+\.)?((Iterable)?Dataset(Dict)?(\.from_\w+)?|load_dataset|load_from_disk|(concatenate|interleave)_datasets)"
)

# Samplers, transforms, and wrappers of loaders and functions.
DISTRIBUTED_SAMPLER = re.compile(r"torch\.utils\.data\.(distributed\.)?DistributedSampler")
#: Classes of transforms in the libraries for images and sound.
TRANSFORM = re.compile(r"(torchvision\.transforms|torchaudio\.transforms)\.([\w.]+\.)?[A-Z]\w*")
NN_MODULE = re.compile(r"torch\.nn\.(modules\.(module\.)?)?Module")
#: Functions and classes that show progress while they yield the items of their argument.
PROGRESS = re.compile(r"tqdm(\.\w+)*\.tqdm(_notebook)?|rich\.progress\.track")
#: Decorators that do not change the arguments and the result of a function.
PLAIN_DECORATOR = re.compile(r"torch\.(no_grad|inference_mode|enable_grad)|builtins\.(staticmethod|classmethod)")

#: Number of levels of base classes to follow.
_BASES_LIMIT = 8


def resolves_to(module: Module, node: cst.CSTNode, names: re.Pattern[str], project: Project | None = None) -> bool:
    """Return whether an expression provably refers to one of ``names``.

    Args:
        module: the module of the expression.
        node: a name or attribute. For a call, the called expression counts.
        names: pattern of the qualified names.
        project: the project whose imports are followed. None means that only the imports of the module count.
    """
    found = module.qualified_names(node) if project is None else resolve_node(project, module, node)
    return bool(found) and all(map(names.fullmatch, found))


def is_call_of(
    module: Module, node: cst.CSTNode | None, names: re.Pattern[str], project: Project | None = None
) -> bool:
    """Return whether ``node`` is a call of one of ``names`` (see :func:`resolves_to`)."""
    return isinstance(node, cst.Call) and resolves_to(module, node.func, names, project)


def qualified_base_names(module: Module, project: Project, node: cst.ClassDef) -> Iterator[str]:
    """Yield the possible qualified names of the bases of a class; ``Base[Birds]`` counts as ``Base``."""
    for base in node.bases:
        yield from resolve_node(project, module, base.value)


def dataset_class_names(project: Project) -> frozenset[str]:
    """Return the names of the project's dataset classes, and their aliases in imports.

    Names that contain a word such as ``Dataset`` are omitted, because :func:`may_name_dataset` also searches for this
    word.
    """
    return find_descendants(project, *_DATASET_CLASSES)


def may_name_dataset(text: str, project: Project) -> bool:
    """Return whether a text may contain the name of a dataset class, including classes of the project."""
    return any(word in text for word in DATASET_WORDS) or not words_of(text).isdisjoint(dataset_class_names(project))


def inherits_from(project: Project, class_name: str, names: re.Pattern[str], depth: int = 0) -> bool:
    """Return whether a qualified name matches ``names``, or names a class of the project with a base that matches.

    The base may be indirect.
    """
    if names.fullmatch(class_name):
        return True
    bases = find_base_classes(project, class_name) if depth < _BASES_LIMIT else None
    return any(inherits_from(project, name, names, depth + 1) for name in bases or ())


def bases_may_match(outline: Outline, project: Project, node: ast.ClassDef, names: re.Pattern[str]) -> bool:
    """Return whether each base of a class may refer to one of ``names``.

    The function reads the syntax tree of ``ast``, for modules that LibCST has not parsed.
    """
    return all(any(map(names.fullmatch, resolve_ast_node(project, outline, base))) for base in node.bases)

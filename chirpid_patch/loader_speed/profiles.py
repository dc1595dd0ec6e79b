"""Functions that read and write the file with the fastest measured loader settings of each dataset and machine."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from chirpid_patch.loader_speed.search import LoaderChoice, LoadingTrial
from chirpid_patch.machine.cpus import usable_cpus

logger = logging.getLogger("chirpid_patch")

_VERSION = 1
#: Largest number of saved results in the file. The oldest results are removed.
_MOST_KEPT = 200
_DEEPEST_LEVEL = 6


def default_profile_path() -> Path:
    """Return the path of the file with saved loader settings.

    The environment variable ``CHIRPID_PROFILE`` contains the path. Without this variable, the file is in the user's
    cache folder.
    """
    given = os.environ.get("CHIRPID_PROFILE")
    if given:
        return Path(given)
    named = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")  # the second name is for Windows
    known = (Path.home() / "Library" / "Caches", Path.home() / ".cache")  # the first folder is for macOS
    root = Path(named) if named else next((folder for folder in known if folder.is_dir()), known[-1])
    return root / "chirpid_patch" / "loader-profile.json"


def loader_choice_key(dataset: Any, options: Mapping[str, Any]) -> str:
    """Return the key of saved loader settings.

    The key is a hash of the dataset, the options, the machine, and the versions of Python and PyTorch. For the hash, an
    option with the value None, False or 0 is the same as a missing option.

    Args:
        dataset: the dataset of the loader.
        options: the arguments of the loader, by name.
    """
    facts = {
        "dataset": _describe(dataset, _DEEPEST_LEVEL),
        "options": {name: _describe(value, 2) for name, value in sorted(options.items()) if not _is_off(value)},
        "machine": [platform.node(), platform.machine(), platform.processor(), usable_cpus(), torch.get_num_threads()],
        "versions": [platform.python_version(), torch.__version__],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _is_off(value: Any) -> bool:
    return value is None or (isinstance(value, bool | int | float) and not value)


def _describe(value: Any, depth: int) -> Any:
    """Return the properties of ``value`` that affect how long loading takes, as values that JSON can store.

    The result contains attributes and items down to ``depth`` levels.
    """
    if isinstance(value, Tensor):
        return [str(value.dtype), list(value.shape), str(value.device)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if depth == 0:
        return kind
    described: dict[str, Any] = {"kind": kind}
    if isinstance(value, Dataset | nn.Module):
        described |= {name: _describe(part, depth - 1) for name, part in sorted(vars(value).items()) if name[0] != "_"}
    methods = [vars(base).get(name) for base in type(value).__mro__ for name in ("__getitem__", "__call__", "forward")]
    codes = [code for code in (getattr(method, "__code__", None) for method in (value, *methods)) if code is not None]
    described["code"] = [hashlib.sha256(repr(_code_identity(code)).encode()).hexdigest() for code in codes]
    if isinstance(value, list | tuple) and len(value) <= 8:
        described["items"] = [_describe(part, depth - 1) for part in value]
    with suppress(Exception):  # the __len__ of a user's dataset may raise any error
        described["length"] = len(value)
    return described


def _code_identity(constant: Any) -> Any:
    """Return a value that identifies compiled code, or a constant in compiled code.

    The value is the same in every process, because the value contains no addresses, and does not depend on the order of
    sets.
    """
    if isinstance(constant, CodeType):
        return constant.co_code, constant.co_names, [_code_identity(one) for one in constant.co_consts]
    if isinstance(constant, frozenset):
        return sorted(map(repr, constant))
    return [_code_identity(one) for one in constant] if isinstance(constant, tuple) else repr(constant)


def read_loader_choice(path: Path, key: str) -> LoaderChoice | None:
    """Return the saved loader settings for ``key``; None if no settings are saved.

    If the file cannot be read, the function logs a warning and returns None.

    Args:
        path: the file with saved loader settings.
        key: a result of ``loader_choice_key``.
    """
    kept = _read(path).get(key)
    if kept is None:
        return None
    try:
        trials = tuple(LoadingTrial(**trial) for trial in kept["trials"])
        workers, threads, prefetch = kept["num_workers"], kept["prefetch_threads"], kept.get("prefetch_factor")
        choice = LoaderChoice(
            int(workers), int(threads), trials, tuple(kept["notes"]), None if prefetch is None else int(prefetch)
        )
        choice.why  # noqa: B018 - raises KeyError if the trials lack the chosen mode or the mode without workers
    except (KeyError, TypeError, ValueError, AssertionError):
        logger.warning("%s: the loader settings saved under the key %s are damaged and are not used", path, key[:12])
        return None
    return choice


def save_loader_choice(path: Path, key: str, choice: LoaderChoice) -> None:
    """Save the loader settings ``choice`` for ``key`` in the file ``path``.

    If the file cannot be written, the function logs a warning, and a later run must measure again.
    """
    choices = _read(path)
    choices.pop(key, None)
    choices[key] = asdict(choice)
    recent = dict(list(choices.items())[-_MOST_KEPT:])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"version": _VERSION, "choices": recent}, file, indent=1)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        logger.warning("the measured loader settings cannot be saved: %s", error)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read as a loader profile: %s", path, error)
        return {}
    choices = content.get("choices") if isinstance(content, dict) and content.get("version") == _VERSION else None
    if not isinstance(choices, dict):
        logger.warning("%s is not a loader profile of version %d", path, _VERSION)
        return {}
    return dict(choices)

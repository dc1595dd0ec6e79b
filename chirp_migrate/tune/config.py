"""Read the configuration file of the user's training, in YAML, TOML or JSON.

``tune`` uses the keys ``training.batch_size``, ``data.num_workers``, ``data.prefetch_factor`` and
``system.output_dir``. The values of other keys in ``data`` and ``training`` become arguments of the dataset class and
of its transforms.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chirp_migrate.errors import UsageProblem
from chirp_migrate.source.toml import parse_toml


def _yaml(text: str) -> Any:
    return importlib.import_module("yaml").safe_load(text)


_READ: dict[str, Callable[[str], Any]] = {
    ".yaml": _yaml, ".yml": _yaml, ".toml": parse_toml, ".json": json.loads,
}  # fmt: skip
_SECTIONS = ("data", "training", "system")
_NUMBERS = (("training", "batch_size", 1), ("data", "num_workers", 0), ("data", "prefetch_factor", 1))


@dataclass(frozen=True)
class TuneConfig:
    """The parts of a configuration file that ``tune`` uses.

    Attributes:
        file: path of the file as the user typed the path, for messages.
        location: absolute path of the file. ``tune`` passes this path to a function or class of ``--dataset`` or
            ``--unaugmented`` that requires an argument.
        data: keys and values of the section ``data``; an empty mapping if the file lacks this section.
        training: keys and values of the section ``training``; an empty mapping if the file lacks this section.
        system: keys and values of the section ``system``; an empty mapping if the file lacks this section.
        batch_size: value of ``training.batch_size``; None if the file lacks the key.
        num_workers: value of ``data.num_workers``; None if the file lacks the key.
        prefetch_factor: value of ``data.prefetch_factor``; None if the file lacks the key.
    """

    file: str
    location: str
    data: Mapping[str, Any]
    training: Mapping[str, Any]
    system: Mapping[str, Any]
    batch_size: int | None = None
    num_workers: int | None = None
    prefetch_factor: int | None = None


def read_config(path: Path) -> TuneConfig:
    """Read a configuration file. The suffix of the file determines the format, and YAML requires PyYAML.

    Raises:
        UsageProblem: the file cannot be read, has an unknown suffix, has no sections, or has an invalid ``batch_size``,
            ``num_workers`` or ``prefetch_factor``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageProblem(
            f"{path} cannot be read ({reason}): pass the configuration file of your training to --config."
        ) from None
    suffix = path.suffix.lower()
    if suffix not in _READ:
        raise UsageProblem(
            f"{path} has an unknown format: pass --config with a file that ends in .yaml, .yml, .toml or .json."
        )
    try:
        values = _READ[suffix](text)
    except ImportError:
        raise UsageProblem(
            f"reading {path} needs PyYAML: install PyYAML (pip install pyyaml), or write the file as TOML or JSON."
        ) from None
    except Exception as error:  # errors of PyYAML are no subclasses of ValueError
        problem = " ".join(str(error).split())
        raise UsageProblem(f"{path} is not valid {suffix[1:].upper()} ({problem}): correct the file.") from None
    if not isinstance(values, dict):
        raise UsageProblem(f"{path} has no sections: add sections such as data and training.")
    sections = {name: values.get(name) or {} for name in _SECTIONS}
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise UsageProblem(f"{path}: {name} must be a section of keys, not {section!r}.")
    # The child process receives JSON. So a YAML date becomes text, and keys that JSON does not support are dropped.
    plain = json.loads(json.dumps(sections, default=str, skipkeys=True))
    numbers: dict[str, Any] = {key: _whole_number(path, plain, section, key, least) for section, key, least in _NUMBERS}
    return TuneConfig(str(path), str(path.absolute()), **plain, **numbers)


def _whole_number(path: Path, sections: Mapping[str, Any], section: str, key: str, least: int) -> int | None:
    value = sections[section].get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    raise UsageProblem(f"{path}: {section}.{key} is {value!r}: it must be a whole number of at least {least}.")

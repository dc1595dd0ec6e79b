"""The training's own configuration: read in three forms, and every mistake in it is one sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from chirp_migrate.errors import UsageProblem
from chirp_migrate.tune.config import read_config

YAML = """
data: {data_csv: a.csv, num_workers: 2, since: 2024-01-02, 2024-01-03: 1}
training:
  batch_size: 24
"""
TOML = """
[data]
data_csv = "a.csv"
num_workers = 2
[training]
batch_size = 24
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", YAML),
        ("c.YML", YAML),
        ("c.toml", TOML),
        ("c.json", json.dumps({"data": {"data_csv": "a.csv", "num_workers": 2}, "training": {"batch_size": 24}})),
    ],
)
def test_three_forms_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    config = read_config(path)
    assert (config.batch_size, config.num_workers, config.prefetch_factor) == (24, 2, None)
    assert config.data["data_csv"] == "a.csv" and config.system == {}
    json.dumps(dict(config.data))  # also what YAML has made a date


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("c.ini", "", "ends in .yaml"),
        ("c.json", "{", "is not valid JSON"),
        ("c.toml", "a = = 1", "is not valid TOML"),
        ("c.yaml", "a: [", "is not valid YAML"),
        ("c.yaml", "a: !!python/object/apply:os.getcwd []", "is not valid YAML"),
        ("c.json", "[1]", "has no sections"),
        ("c.json", '{"data": 3}', "data must be a section"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(tmp_path: Path, name: str, text: str, problem: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageProblem, match=problem) as raised:
        read_config(path)
    assert "\n" not in str(raised.value) and name in str(raised.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageProblem, match=r"cannot be read \(No such file"):
        read_config(Path("nowhere.yaml"))


@pytest.mark.parametrize("value", ["0", '"many"', "true", "1.5"])
def test_a_batch_size_that_is_none(tmp_path: Path, value: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(f'{{"training": {{"batch_size": {value}}}}}')
    with pytest.raises(UsageProblem, match=r"training\.batch_size is .*: it must be a whole number of at least 1"):
        read_config(path)


def test_yaml_without_pyyaml_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(YAML)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UsageProblem, match="pip install pyyaml"):
        read_config(path)

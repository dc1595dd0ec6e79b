"""Settings of commands: the long names of their options, as docs/settings.md lists them."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from support import LOADER, ROOT, run, sentence, write_files

from chirp_migrate.cli.command_settings import parameters_by_setting
from chirp_migrate.cli.verify import parse_verify_options
from chirp_migrate.engine.settings import KEYS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def documented(table: str) -> dict[str, Any]:
    """The keys that the page shows of a table, those in comments as well."""
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    block = re.search(rf"```toml\n\[{re.escape(table)}\]\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return tomllib.loads(re.sub(r"^# ", "", block.group(1), flags=re.MULTILINE))


@pytest.mark.parametrize("name", ["verify", "tune"])
def test_the_page_lists_every_option_that_is_a_setting(name: str) -> None:
    command = getattr(importlib.import_module(f"chirp_migrate.cli.{name}"), name)
    assert isinstance(command, click.Command)
    assert documented(f"tool.chirp-migrate.{name}").keys() == parameters_by_setting(command).keys()


def test_the_page_lists_every_key_of_the_table() -> None:
    assert {*documented("tool.chirp-migrate"), "verify", "tune"} == {*KEYS}


def test_what_the_page_shows_is_read(tmp_path: Path) -> None:
    write_files(tmp_path, {"src/a.py": LOADER, "configs/retinal.yaml": "data: {}\n"})
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    tables = [block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "data = " not in block]
    (tmp_path / "pyproject.toml").write_text("\n".join(tables))
    assert run("plan", tmp_path).exit_code == 0
    done = run("tune", "--workload", "nowhere.py:train", tmp_path)
    assert done.exit_code == 2 and "there is no nowhere.py" in sentence(done), "which puts the dataset aside"
    done = run("tune", "--dataset", "nowhere.py:train", tmp_path)
    assert "PATH has no file nowhere.py" in done.stderr and done.exit_code == 2


@pytest.mark.parametrize(
    ("table", "line", "command", "said"),
    [
        (
            "tune",
            "prefetch = [0]",
            "tune",
            "prefetch: pass numbers of at least 1, separated by commas",
        ),
        ("tune", 'loader = "fast"', "tune", "loader: 'fast' is not one of 'auto', 'torch', 'factory'."),
        ("tune", "save = false", "tune", "save is unknown; the keys are dataset,"),
        ("tune", "time-budget = 0", "tune", "time-budget: 0.0 is not in the range 1<=x<=86400."),
        ("tune", "num-workers = [99]", "tune", "num-workers: pass numbers from 0 to 64"),
        ("verify", 'baseline = ""', "verify", "baseline: the value is empty: pass a git revision or a folder."),
        ("verify", "simulate-step-ms = 3", "verify", "simulate-step-ms is unknown; the keys are workload,"),
        ("", "vendor = 1", "plan", "vendor must be true or false."),
    ],
)
def test_a_wrong_one_is_named_with_file_line_and_key(
    tmp_path: Path, table: str, line: str, command: str, said: str
) -> None:
    header = f"tool.chirp-migrate.{table}".rstrip(".")
    files = {"a.py": LOADER, "pyproject.toml": f'[project]\nname = "x"\n\n[{header}]\n# Ours:\n{line}\n'}
    done = run(command, write_files(tmp_path, files))
    assert done.exit_code == 2
    assert f"{tmp_path / 'pyproject.toml'}, line 6: [{header}] {said}" in sentence(done)


def test_what_is_added_can_be_a_setting_that_options_go_before(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"a.py": LOADER, "pyproject.toml": "[tool.chirp-migrate]\nvendor = true\n"})
    assert "chirpid_patch/" in run("plan", root).stdout
    assert "chirpid_patch/" not in run("plan", "--no-vendor", root).stdout
    (root / "utils").mkdir()
    (root / "pyproject.toml").write_text("[tool.chirp-migrate]\nscaffold = true\n")
    assert "utils/dataloader_factory.py" in run("plan", root).stdout
    assert "utils/dataloader_factory.py" not in run("plan", "--no-scaffold", root).stdout


def test_a_folder_to_compare_with_lies_beside_the_settings(tmp_path: Path) -> None:
    settings = '[tool.chirp-migrate.verify]\nbaseline = "a.py"\n'
    root = write_files(tmp_path, {"chirp_verify.py": "", "old/a.py": "", "pyproject.toml": settings})
    assert "--baseline a.py is neither a folder" in sentence(run("verify", "--list", root))
    (root / "pyproject.toml").write_text(settings.replace("a.py", "old"))
    assert "--baseline" not in run("verify", "--list", root).stderr


def test_a_model_that_would_not_be_trained_is_refused(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"chirp_verify.py": "", "pyproject.toml": ""})
    assert parse_verify_options(str(root)).entry is not None
    done = run("verify", "--model", "utils.models:Bird", "--list", root)
    assert done.exit_code == 2 and "model applies to entry points that are found" in sentence(done)

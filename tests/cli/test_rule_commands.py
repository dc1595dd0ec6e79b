"""``rules``, ``explain``, and what selecting and suppressing looks like on the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support import run, sentence, write_files

from chirp_migrate.rules import all_rules

IMPORT = "from torch.utils.data import DataLoader\n"


def backend(root: Path, text: str, **more: str) -> Path:
    """A backend of one file, and others by name."""
    return write_files(root, {"a.py": text, "requirements.txt": "torch\n", **more})


def test_rules_lists_every_rule_in_80_columns() -> None:
    shown = run("rules").stdout
    assert max(map(len, shown.splitlines())) <= 80
    for rule in all_rules():
        assert f"{rule.code}  {rule.name}, {rule.safety.value}" in shown
    listed = json.loads(run("rules", "--json", "-").stdout)["rules"]
    assert [(one["code"], one["safety"]) for one in listed] == [(r.code, r.safety.value) for r in all_rules()]


@pytest.mark.parametrize("code", ["CHP001", "chp001", "dataloader-factory"])
def test_explain_shows_reason_safety_and_a_diff(code: str) -> None:
    shown = run("explain", code, "--color", "never").stdout
    head, diff = shown.split("\n--- before.py\n")
    assert head.startswith("CHP001  dataloader-factory") and "Safety: safe" in head and "sets workers" in head
    assert "\n-" in diff and "\n+" in diff and "OptimalDataLoaderFactory" in diff
    assert max(map(len, head.splitlines())) <= 80
    assert "\x1b[32m+" in run("explain", code, "--color", "always").stdout


def test_explain_says_what_a_rule_reports() -> None:
    content = json.loads(run("explain", "CHP007", "--json", "-").stdout)
    assert any("lambda" in one["source"] and "not rewritten: " in one["message"] for one in content["reports"])


@pytest.mark.parametrize("code", ["CHP7", "CHP00"])
def test_explain_of_no_single_rule_is_a_sentence(code: str) -> None:
    done = run("explain", code)
    assert done.exit_code == 2 and code in sentence(done)


def test_a_run_ends_with_an_account_and_folds_what_is_alike(tmp_path: Path) -> None:
    body = "".join(f"x{n} = DataLoader(d{n})\n" for n in range(3)) + "k = [DataLoader]\nl = [DataLoader]\n"
    root = backend(tmp_path, IMPORT + body + "y = DataLoader(d)  # chirp: ignore\n")
    target = tmp_path / "out.json"
    shown = run("apply", "--json", target, root).stdout
    sites = json.loads(target.read_text())["ledger"]["sites"]
    assert [sites[name] for name in ("found", "migrated", "suppressed", "listed")] == [6, 3, 1, 2]
    # Lines of the new file, which has one import more.
    assert " 3, 4, 1 more\n" in shown and "CHP001 decided at run time" in shown
    assert "a.py:6, 7: " in shown and "a.py:8" not in shown
    assert max(map(len, shown.replace(str(root), "").splitlines())) <= 80


def test_verbose_lists_every_finding_and_what_is_suppressed(tmp_path: Path) -> None:
    root = backend(tmp_path, IMPORT + "x = DataLoader(a)\ny = DataLoader(b)\nz = DataLoader(c)  # chirp: ignore\n")
    shown = run("apply", "--verbose", root).stdout
    assert shown.count("CHP001") >= 3 and "\n4 CHP001" in shown


def test_uses_of_the_class_as_a_value_are_no_loaders_and_their_reasons_are_whole(tmp_path: Path) -> None:
    files = {f"module{number}.py": IMPORT + "class Run:\n    loader_class = DataLoader\n" for number in range(2)}
    root = backend(tmp_path, IMPORT + "x = DataLoader(d)\n", **files)
    shown = run("plan", root).stdout
    joined = " ".join(shown.split())
    assert "1 loader found: 1 to migrate. DataLoader is used as a value in 2 places, which are not rewritten." in joined
    assert "Loaders not rewritten" not in joined and "used-as-value" not in joined
    assert "module1.py:3: `DataLoader` is stored in the class attribute `loader_class`" in joined and "…" not in joined
    assert joined.count("(-v)") == 2


def test_a_diff_names_what_is_left_alone_and_is_still_a_patch(tmp_path: Path) -> None:
    root = backend(tmp_path, IMPORT + "x = DataLoader(d)\nk = [DataLoader]\n", **{"bad.py": "DataLoader(\n"})
    done = run("apply", "--diff", root)
    assert done.exit_code == 1
    assert (
        "\n#   bad.py: " in done.stdout
        and "1 loader found: 1 to migrate." in done.stderr
        and "DataLoader is used as a value in 1 place, which is not rewritten (listed after the diff)."
        in " ".join(done.stderr.split())
    )
    subprocess.run(["git", "apply", "-"], cwd=root, input=done.stdout, text=True, check=True)
    assert "OptimalDataLoaderFactory" in (root / "a.py").read_text()


def test_selected_rules_are_the_only_ones_and_unsafe_ones_still_ask(tmp_path: Path) -> None:
    root = backend(tmp_path, IMPORT + "x = DataLoader(d, collate_fn=lambda b: [b], num_workers=2)\n")
    target = tmp_path / "out.json"
    run("apply", "--diff", "--select", "CHP007,CHP009", "--select", "CHP010", "--json", target, root)
    content = json.loads(target.read_text())
    assert {one["rule"] for one in content["findings"]} == {"CHP007"}
    assert content["ledger"]["sites"]["found"] == 0 and content["ledger"]["rules"]["CHP007"]["migrated"] == 1
    done = run("apply", "--diff", "--ignore", "CHP00,CHP01,CHP02", "--select", "CHP007", root)
    assert "OptimalDataLoaderFactory" not in done.stdout and "Loaders:" not in done.stderr


def test_settings_of_the_backend_are_read_and_the_command_line_goes_first(tmp_path: Path) -> None:
    text = IMPORT + "x = DataLoader(d, collate_fn=lambda b: [b])\n"
    root = backend(tmp_path, text, **{"pyproject.toml": '[tool.chirp-migrate]\nignore = ["CHP001"]\n'})
    assert "CHP001" not in run("apply", "--diff", root).stdout
    assert "CHP001" in run("apply", "--diff", "--select", "CHP001", root).stdout
    (root / "pyproject.toml").write_text("[tool.chirp-migrate]\nselct = []\n")
    done = run("apply", "--diff", root)
    assert done.exit_code == 2 and "line 2: [tool.chirp-migrate] selct is unknown; did you mean select?" in sentence(
        done
    )

"""The command line as people and scripts meet it: what it ends with, what it writes, what it leaves as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import LOADER, ROOT, Death, copy_of, in_child, run, run_process, sentence, snapshot, write_files

from chirp_migrate import __version__
from chirp_migrate.cli import entry_point
from chirp_migrate.engine.migration import plan_migration
from chirp_migrate.engine.settings import Settings
from chirp_migrate.transaction.commit import commit_plan

posix = pytest.mark.skipif(os.name == "nt", reason="needs processes that are killed")


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """A small backend with one loader to migrate."""
    files = {"utils/train.py": LOADER, "utils/other.py": "x = 1\n", "requirements.txt": "torch\n"}
    return write_files(tmp_path / "backend", files)


def test_apply_review_repeat_and_rollback(backend: Path) -> None:
    before = snapshot(backend)
    done = run("apply", backend)
    assert (done.exit_code, done.stderr) == (0, "")
    for said in ("utils/train.py", "CHP001", "requirements.txt", "chirp-migrate verify", "chirp-migrate rollback"):
        assert said in done.stdout
    assert max(map(len, done.stdout.replace(str(backend), "").splitlines())) <= 80
    assert "chirpid_patch" in (backend / "utils" / "train.py").read_text()
    migrated = snapshot(backend)

    again = run("apply", backend)
    assert again.exit_code == 0
    assert snapshot(backend) == migrated

    back = run("rollback", backend)
    assert back.exit_code == 0 and "utils/train.py" in back.stdout
    assert snapshot(backend) == before


def test_diff_writes_nothing_and_is_a_patch(backend: Path) -> None:
    before = snapshot(backend)
    shown = run("apply", "--diff", backend)
    assert shown.exit_code == 0
    assert snapshot(backend) == before
    assert "\x1b" not in shown.stdout
    run("apply", backend)
    expected = {name: one for name, one in snapshot(backend).items() if not name.startswith(".chirp-migrate")}
    run("rollback", backend)
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(backend.parent)}
    subprocess.run(["git", "apply", "-"], cwd=backend, input=shown.stdout, text=True, check=True, env=environment)
    assert {name: one[1] for name, one in snapshot(backend).items()} == {n: one[1] for n, one in expected.items()}


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("no_colour", [False, True])
def test_a_terminal_gets_colour_unless_it_says_no(backend: Path, no_colour: bool) -> None:
    import pty

    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    if no_colour:
        environment["NO_COLOR"] = "1"
    command = [sys.executable, "-m", "chirp_migrate", "apply", "--diff", "--no-scaffold", str(backend)]
    process = subprocess.Popen(command, stdout=child, stderr=subprocess.DEVNULL, env=environment)
    os.close(child)
    shown = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the other end of a pseudo-terminal is gone
            break
        if not piece:
            break
        shown += piece
    os.close(parent)
    assert process.wait() == 0
    assert (b"\x1b[" in shown) is not no_colour


def test_json_lists_files_findings_and_what_was_left(backend: Path, tmp_path: Path) -> None:
    (backend / "broken.py").write_text("from torch.utils.data import DataLoader\ndef f(:\n")
    target = tmp_path / "out.json"
    done = run("apply", "--diff", "--json", target, backend)
    assert done.exit_code == 1
    content = json.loads(target.read_text())
    assert content["schema"] == 1
    files = [(one["path"], one["sha256_before"] is None, one["note"]) for one in content["files"]]
    assert ("utils/train.py", False, "rewrite") in files
    assert all(len(one["sha256_after"]) == 64 for one in content["files"])
    (finding,) = [one for one in content["findings"] if one["path"] == "utils/train.py"]
    assert (finding["rule"], finding["line"], finding["status"]) == ("CHP001", 3, "rewrite")
    assert [one["path"] for one in content["skipped"]] == ["broken.py"]


def test_json_on_standard_output_is_nothing_but_json(backend: Path) -> None:
    applied = run("apply", "--json", "-", backend)
    assert json.loads(applied.stdout)["schema"] == 1
    assert "utils/train.py" in applied.stderr
    back = run("rollback", "--json", "-", backend)
    assert "utils/train.py" in json.loads(back.stdout)["restored"]


@pytest.mark.parametrize("target", ["missing/out.json", "."])
def test_a_report_that_cannot_be_written_stops_the_run_before_it_begins(
    backend: Path, tmp_path: Path, target: str
) -> None:
    before = snapshot(backend)
    done = run("apply", "--json", tmp_path / target, backend)
    assert done.exit_code == 2 and str(tmp_path) in sentence(done)
    assert snapshot(backend) == before


@pytest.mark.parametrize("command", ["apply", "rollback", "verify"])
def test_a_path_that_does_not_exist_is_one_sentence(tmp_path: Path, command: str) -> None:
    done = run(command, tmp_path / "missing")
    assert done.exit_code == 2 and "missing" in sentence(done)


def test_a_folder_without_python_is_one_sentence(tmp_path: Path) -> None:
    done = run("apply", tmp_path)
    assert done.exit_code == 2 and str(tmp_path) in sentence(done)


@pytest.mark.parametrize("command", ["rollback", "verify"])
def test_what_needs_an_apply_first_says_so(backend: Path, command: str) -> None:
    done = run(command, backend)
    assert done.exit_code == 2 and "backend" in sentence(done)


def test_a_broken_and_a_read_only_file_are_reported_and_the_rest_is_migrated(backend: Path) -> None:
    (backend / "broken.py").write_text("DataLoader\ndef f(:\n")
    fixed = backend / "utils" / "fixed.py"
    fixed.write_text(LOADER)
    fixed.chmod(0o444)
    done = run("apply", backend)
    assert done.exit_code == 1
    assert "broken.py" in done.stdout and "utils/fixed.py" in done.stdout
    assert fixed.read_text() == LOADER
    assert "chirpid_patch" in (backend / "utils" / "train.py").read_text()


def test_uncommitted_changes_stop_the_run_until_allowed(backend: Path) -> None:
    for arguments in (["init", "--quiet"], ["add", "requirements.txt"]):
        subprocess.run(["git", *arguments], cwd=backend, check=True)
    before = snapshot(backend)
    done = run("apply", backend)
    assert done.exit_code == 3
    assert "utils/train.py" in sentence(done) and "--allow-dirty" in done.stderr
    assert snapshot(backend) == before
    assert run("apply", "--allow-dirty", backend).exit_code == 0


def test_a_rollback_over_edits_is_refused_until_forced(backend: Path) -> None:
    before = snapshot(backend)
    run("apply", backend)
    with (backend / "utils" / "train.py").open("a") as file:
        file.write("mine = 1\n")
    edited = snapshot(backend)
    done = run("rollback", backend)
    assert done.exit_code == 3
    assert "utils/train.py" in sentence(done) and "--force" in done.stderr
    assert snapshot(backend) == edited
    assert run("rollback", "--force", backend).exit_code == 0
    assert snapshot(backend) == before


def killed_half_way(root: Path) -> None:
    """An ``apply`` that is killed with one of its files replaced."""
    plan = plan_migration(root)
    assert in_child(lambda: commit_plan(plan, on_step=Death(f"replaced {plan.files[0].path}"))) < 0


@posix
@pytest.mark.parametrize("command", ["apply", "rollback", "verify"])
def test_every_command_says_what_a_killed_apply_left_and_undoes_it(backend: Path, command: str) -> None:
    before = snapshot(backend)
    killed_half_way(backend)
    halfway = snapshot(backend)
    assert halfway != before

    shown = run("apply", "--diff", backend)
    assert shown.exit_code == 3 and "chirp-migrate rollback" in sentence(shown)
    assert snapshot(backend) == halfway

    done = run(command, backend)
    assert "interrupted" in done.stdout + done.stderr
    if command == "apply":
        assert done.exit_code == 0 and "chirpid_patch" in (backend / "utils" / "train.py").read_text()
        assert run("rollback", backend).exit_code == 0
    else:
        assert done.exit_code == (0 if command == "rollback" else 2)
    assert snapshot(backend) == before


@posix
def test_undoing_an_interrupted_apply_leaves_the_one_before_it(backend: Path) -> None:
    run("apply", "--no-scaffold", backend)
    (backend / "utils" / "more.py").write_text(LOADER)
    (backend / "utils" / "again.py").write_text(LOADER)
    between = snapshot(backend)
    killed_half_way(backend)
    done = run("rollback", backend)
    assert done.exit_code == 0
    assert snapshot(backend) == between


@pytest.mark.skipif(os.name == "nt", reason="names are not bytes there")
def test_a_name_that_is_not_text_can_be_migrated_and_printed(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/n\xff.py"
    with open(path, "w") as file:  # noqa: PTH123 - Path cannot hold these bytes on every system
        file.write(LOADER)
    assert run("apply", tmp_path).exit_code == 0
    assert run("rollback", "--json", "-", tmp_path).exit_code == 0
    with open(path) as file:  # noqa: PTH123
        assert file.read() == LOADER


@pytest.mark.slow
def test_a_reader_that_goes_away_is_not_an_error_of_ours(backend: Path) -> None:
    lines = (f"loader_{n} = DataLoader(data_{n})  # {'long ' * 400}\n" for n in range(40))  # more than a pipe holds
    (backend / "long.py").write_text(LOADER + "".join(lines))
    command = [sys.executable, "-m", "chirp_migrate", "apply", "--diff", str(backend)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 141


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 141), (["no-such-command"], 2), ([], 2)])
def test_a_reader_that_has_gone_away_changes_no_exit_code(arguments: list[str], code: int) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "chirp_migrate", *arguments]
    assert subprocess.run(command, stdout=write, stderr=write, check=False).returncode == code
    os.close(write)


@pytest.mark.parametrize(
    "arguments", [["--no-such-option"], ["no-such-command"], ["apply", "one", "two"], ["apply", "--color", "x", "."]]
)
def test_wrong_usage_ends_in_code_2_and_points_to_help(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2 and " -h" in done.stderr.replace("--help", "-h")


def test_help_and_wrong_paths_do_not_wait_for_pytorch() -> None:
    asked = """
import sys
sys.modules["torch"] = None
from click.testing import CliRunner
from chirp_migrate.cli import main
for command in main.list_commands(None):
    shown = CliRunner().invoke(main, [command, "--help"])
    assert shown.exit_code == 0 and "Usage" in shown.output, (command, shown.exception)
for command in ("verify", "tune"):
    shown = CliRunner().invoke(main, [command, "no/such/folder"])
    assert "no/such/folder" in f"{shown.output} {shown.exception}"
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_distribution() -> None:
    assert __version__ in run_process("--version").stdout
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{__version__}"\n' in pyproject


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_asks_this_program(shell: str) -> None:
    done = run("completion", shell)
    assert done.exit_code == 0 and "_CHIRP_MIGRATE_COMPLETE" in done.stdout


def test_a_defect_of_ours_is_one_line_with_the_way_to_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("chirp_migrate.cli.completion.get_completion_class", lambda _: 1 / 0)
    for asked, lines in (([], 1), (["--debug"], None)):
        with pytest.raises(SystemExit) as ended:
            entry_point([*asked, "completion", "bash"])
        said = capsys.readouterr().err
        assert ended.value.code == 70
        assert "--debug" in said if lines else "Traceback" in said and "ZeroDivisionError" in said
        assert lines in (None, len(said.splitlines()))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_in_the_place_of_settings_is_not_waited_for(backend: Path) -> None:
    os.mkfifo(backend / "pyproject.toml")
    assert "pyproject.toml" in sentence(run("apply", backend))


def test_a_project_without_anything_for_rules_stays_as_it_is_and_is_told_so(backend: Path) -> None:
    (backend / "utils" / "train.py").write_text("def train(model):\n    return model.train()\n")
    before = snapshot(backend)
    done = run("apply", backend)
    assert (done.exit_code, done.stderr, len(done.stdout.splitlines())) == (0, "", 3)
    assert snapshot(backend) == before


def test_what_is_found_and_not_rewritten_is_not_said_to_be_nothing(backend: Path) -> None:
    text = "from torch.utils.data import DataLoader\n\n\nclass Mine(DataLoader):\n    pass\n"
    (backend / "utils" / "train.py").write_text(text)
    for command in ("apply", "plan"):
        said = run(command, backend).stdout
        assert "Nothing to rewrite. Found: 1 reported (CHP001)." in said and "already migrated" not in said
    assert run("review", backend, cwd=backend).stdout == "Nothing to review: no rule rewrites the findings.\n"


@pytest.mark.parametrize(
    ("training_modules", "scaffold", "added"),
    [(False, None, False), (True, None, True), (False, True, True), (True, False, False)],
)
def test_files_are_added_to_a_training_backend_or_where_they_are_asked_for(
    backend: Path, training_modules: bool, scaffold: bool | None, added: bool
) -> None:
    if training_modules:
        (backend / "utils" / "training_engine.py").touch()
    plan = plan_migration(backend, settings=Settings(scaffold=scaffold))
    assert ("utils/dataloader_factory.py" in [file.path for file in plan.files]) is added
    assert "requirements.txt" in [file.path for file in plan.files]


@pytest.mark.parametrize("vendor", [False, True])
def test_nothing_is_asked_for_that_nothing_imports(backend: Path, vendor: bool) -> None:
    (backend / "utils" / "training_engine.py").touch()
    (backend / "utils" / "train.py").write_text(
        "from torch.utils.data import DataLoader\n\n\ndef train(model, data, device):\n"
        "    for x, y in DataLoader(data, pin_memory=True):\n        model(x.to(device), y.to(device))\n"
    )
    plan = plan_migration(backend, settings=Settings(codes=frozenset({"CHP013"}), vendor=vendor))
    assert [file.path for file in plan.files] == ["utils/train.py"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "--foo"], "there is no option --foo. See `chirp-migrate plan --help`"),
        (["rules", "--colr", "never"], "did you mean --color?"),
        (["chek"], "there is no command 'chek'; did you mean check?"),
        (["plan", "-j", "x"], "'x' is not a valid whole number"),
        (["plan", "--select", ""], "the value is empty"),
        (["plan", "--exclude", "a["], "--exclude: 'a[' is not a valid pattern of .gitignore"),
        (["plan", "--exclude", "!a.py"], "--exclude: '!a.py' begins with !, which is only permitted in settings"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(backend: Path, arguments: list[str], said: str) -> None:
    done = run(*arguments, cwd=backend)
    assert done.exit_code == 2 and said in sentence(done)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[tool.chirp-migrate]\nunsafe = true\n".encode("utf-16"), "is not UTF-8"),
        (b"[tool.chirp-migrate.per-file-ignores]\n'!a' = ['CHP001']\n", "'!a' begins with !"),
        (b"[tool.chirp-migrate]\nexclude = ['[z-a]']\n", "exclude is invalid: '[z-a]' is not"),
        (b"[tool.chirp-migrate]\nexclude = ['[']\n", "exclude is invalid: '[' is not a valid pattern of .gitignore"),
        (b"[tool.chirp-migrate.verify]\nsamples = '3'\n", "samples: '3' is a text, not a whole number"),
    ],
)
def test_settings_that_mean_nothing_are_refused(backend: Path, content: bytes, said: str) -> None:
    (backend / "pyproject.toml").write_bytes(content)
    done = run("verify" if b"verify" in content else "plan", cwd=backend)
    assert done.exit_code == 2 and said in sentence(done)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_under_the_output_is_said(backend: Path) -> None:
    command = [sys.executable, "-m", "chirp_migrate", "plan", str(backend)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 4 and "cannot write to standard output" in done.stderr.splitlines()[0]


def test_another_apply_meanwhile_is_refused(backend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "chirp_migrate.cli.applying.check_nothing_to_rewrite", lambda *_, **__: run_process("apply", backend)
    )
    done = run("apply", backend)
    assert done.exit_code == 3 and "these files changed after the plan was made" in sentence(done)


def test_an_interrupted_apply_says_that_nothing_was_written(backend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("chirp_migrate.cli.applying.check_nothing_to_rewrite", stop)
    done = run("apply", backend)
    assert done.exit_code == 130 and "interrupted: nothing was written" in sentence(done)


def test_what_is_not_shown_is_counted_by_rule(tmp_path: Path) -> None:
    shown = run("plan", copy_of("backend", tmp_path / "backend")).stdout
    counted = "Not shown: 3 unchanged (2 CHP007, 1 CHP013), 20 reported (9 CHP024, 6 CHP025, 5 CHP026); -v shows them."
    assert counted in " ".join(shown.split())


def test_quiet_explain_prints_no_example() -> None:
    assert "Reported code" in run("explain", "CHP001").stdout
    assert "Reported code" not in run("explain", "-q", "CHP001").stdout


def test_the_list_of_runs_fits_a_narrow_terminal_and_rollback_names_the_run(backend: Path) -> None:
    run("apply", backend)
    shown = run("rollback", "--list", "-v", cwd=backend, COLUMNS="40").stdout
    assert max(map(len, shown.splitlines())) <= 40
    assert "is as it was before run 0001." in run("rollback", backend).stdout

"""``plan``, ``review`` and ``apply --plan`` as people and pipes use them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import Result
from support import RULES, run, sentence, write_files

TRAIN = """\
import torch
from torch.utils.data import DataLoader

first = DataLoader(one, batch_size=2)


second = DataLoader(two, batch_size=3)


third = DataLoader(three, collate_fn=lambda b: (torch.stack([s[0] for s in b]), torch.stack([s[1] for s in b])))
"""
OTHER = "from torch.utils.data import DataLoader\n\nlast = DataLoader(four)\n"


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """Two files with four loaders and a lambda: four hunks, and the line in requirements.txt."""
    files = {"train.py": TRAIN, "zoo.py": OTHER, "requirements.txt": "torch\n"}
    return write_files(tmp_path / "back end", files)


def reviewed(root: Path, answers: str, *options: str, **variables: str) -> tuple[Result, list[int]]:
    """A review beside ``root``, and how many hunks are accepted, refused and undecided."""
    counts = root.with_name("counts.json")
    done = run("review", root, *options, "--json", counts, cwd=root.parent, answers=answers, **variables)
    told = json.loads(counts.read_text())
    return done, [told[one] for one in ("accepted", "refused", "undecided")]


def sources(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in root.iterdir() if path.is_file()}


def test_a_plan_is_made_reviewed_by_somebody_else_and_applied(backend: Path, tmp_path: Path) -> None:
    before = sources(backend)
    assert run("plan", backend, "-o", "plan.json", cwd=tmp_path).exit_code == 0
    assert sources(backend) == before

    begun, counts = reviewed(backend, "y\nn\nq\n", "--plan", "plan.json")
    assert (begun.exit_code, counts) == (1, [1, 1, 3])
    too_early = run("apply", backend, "--plan", "plan.json", cwd=tmp_path)
    assert too_early.exit_code == 3 and "3 hunks" in sentence(too_early)

    ended, counts = reviewed(backend, "y\nn\ny\n", "--plan", "plan.json")
    assert (ended.exit_code, counts) == (0, [3, 2, 0]) and sources(backend) == before

    assert run("apply", backend, "--plan", "plan.json", cwd=tmp_path).exit_code == 0
    after = sources(backend)
    assert after["zoo.py"] == OTHER and "chirpid-patch" in after["requirements.txt"]
    assert "second = DataLoader(two, batch_size=3)" in after["train.py"]
    assert "first = OptimalDataLoaderFactory" in after["train.py"] and "lambda" not in after["train.py"]
    assert "from torch.utils.data import DataLoader\n" in after["train.py"]

    again = run("apply", backend, "--plan", "plan.json", cwd=tmp_path)
    assert again.exit_code == 3 and "train.py" in again.stderr and sources(backend) == after


def test_what_is_no_plan_decides_nothing_where_options_say_what_to_plan(backend: Path) -> None:
    file = backend.with_name("plan.json")
    file.write_text("[1]")
    refused = run("review", backend, "--plan", file)
    assert refused.exit_code == 2 and "is not a plan" in sentence(refused) and file.read_text() == "[1]"
    ended, counts = reviewed(backend, "y\nq\n", "--plan", "plan.json", "--select", "CHP001")
    assert (ended.exit_code, counts) == (1, [1, 0, 4])


def test_a_review_goes_on_where_the_source_is_still_the_same(backend: Path) -> None:
    assert reviewed(backend, "a\nn\nq\n")[1] == [3, 1, 1]
    (backend / "train.py").write_text(TRAIN + "\n# edited\n")
    resumed, counts = reviewed(backend, "r\nn\ny\n")
    assert (resumed.exit_code, counts) == (0, [3, 2, 0]) and "train.py" in resumed.stderr
    after = sources(backend)
    assert after["zoo.py"] == OTHER and after["requirements.txt"] == "torch\n"
    assert after["train.py"].endswith("\n# edited\n") and after["train.py"].count("OptimalDataLoaderFactory.") == 3


def test_a_hunk_is_edited_and_what_is_no_python_is_not_taken(backend: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "state = pathlib.Path(__file__).with_suffix('.count')\n"
        "count = len(state.read_text()) if state.exists() else 0\n"
        "state.write_text('x' * (count + 1))\n"
        "text = path.read_text()\n"
        "edited = [text + ')', text.replace('#@@', '#'), text.replace('batch_size=2', 'batch_size=64')]\n"
        "path.write_text(edited[count])\n"
    )
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(editor))}"
    done, counts = reviewed(backend, "e\ne\ne\nd\nn\nn\ny\n", EDITOR=command, VISUAL="")
    assert (done.exit_code, counts) == (0, [1, 4, 0])
    assert editor.with_suffix(".count").read_text() == "xxx", "asked again after each of two that were not taken"
    after = sources(backend)
    assert "batch_size=64" in after["train.py"] and after["zoo.py"] == OTHER
    compile(after["train.py"], "train.py", "exec")


def test_all_refused_applies_nothing(backend: Path) -> None:
    before = sources(backend)
    done, counts = reviewed(backend, "R\nd\nn\nn\nn\n")
    assert (done.exit_code, counts) == (0, [0, 5, 0]) and sources(backend) == before


def test_help_back_and_odd_answers(backend: Path) -> None:
    done, counts = reviewed(backend, "b\n?\nyes please\n\nx\ny\nb\nn\n")
    assert counts == [0, 1, 4]
    assert done.stdout.count("refuse the rest of this rule") == 3, "asked for, and where an answer is none"
    assert RULES["CHP001"].reason in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["review", "plan.json"], 2, "chirp-migrate review PROJECT --plan plan.json"),
        (["apply", "back end", "--plan", "missing.json"], 2, "missing.json cannot be read"),
        (["apply", "back end", "--plan", "plan.json", "--unsafe"], 2, "--plan already determines the rules and files"),
        (["review", "back end", "--plan", "nowhere/plan.json"], 2, "nowhere/plan.json cannot be written"),
        (["apply", "back end", "--diff", "--check-with", "true"], 2, "use only one of them"),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence(
    backend: Path, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    (tmp_path / "plan.json").write_text("{}")
    done = run(*arguments, cwd=tmp_path)
    assert done.exit_code == code and said in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are a Unix thing")
def test_in_a_terminal(backend: Path, tmp_path: Path) -> None:
    import pexpect

    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NO_COLOR", None)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "chirp_migrate", "review", str(backend)],
        cwd=str(tmp_path),
        env=environment,
        encoding="utf-8",
        timeout=60,
        dimensions=(40, 100),
    )
    child.expect(r"\x1b\[31m-first = DataLoader")
    child.expect(r"\x1b\[32m\+first = OptimalDataLoaderFactory")
    child.expect(r"\[1/5\] accept\?")
    child.sendline("n")
    child.expect(r"\[2/5\] accept\?")
    child.sendline("r")
    child.expect("3 hunks accepted")
    child.expect(r"\[5/5\] accept\?")
    child.sendintr()
    child.expect("interrupted")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130 and sources(backend)["train.py"] == TRAIN

    # What was decided before Ctrl-C is kept; a terminal that can do nothing gets no colours.
    child = pexpect.spawn(
        sys.executable,
        ["-m", "chirp_migrate", "review", str(backend)],
        cwd=str(tmp_path),
        env={**environment, "TERM": "dumb"},
        encoding="utf-8",
        timeout=60,
    )
    child.expect("4 of them decided earlier")
    child.expect(r"\[5/5\] accept\?")
    assert "\x1b" not in child.before
    child.sendline("y")
    child.expect("Apply the accepted hunks now")
    child.sendline("perhaps")
    child.expect("Apply the accepted hunks now")
    child.sendline("y")
    child.expect("rewritten")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert sources(backend)["train.py"].count("OptimalDataLoaderFactory.") == 2


# The user's own command decides whether a rewrite stays.


def test_a_failing_command_takes_everything_back(backend: Path, tmp_path: Path) -> None:
    before = sources(backend)
    command = f"{shlex.quote(sys.executable)} -c \"print('the ' + 'tests failed'); raise SystemExit(7)\""
    done = run("apply", backend, "--check-with", command, cwd=tmp_path)
    assert done.exit_code == 5 and "the tests failed" in done.stderr
    assert "exit code 7" in done.stderr and "rolled back" in done.stderr
    assert sources(backend) == before and not (backend / ".chirp-migrate").exists()


def test_a_command_that_succeeds_lets_it_stay_and_sees_it(backend: Path, tmp_path: Path) -> None:
    command = "grep -q OptimalDataLoaderFactory train.py"
    assert run("apply", backend, "--check-with", command, cwd=tmp_path).exit_code == 0
    assert "OptimalDataLoaderFactory" in sources(backend)["train.py"]


def test_edits_of_the_failing_command_are_not_lost(backend: Path, tmp_path: Path) -> None:
    done = run("apply", backend, "--check-with", "echo '# mine' >> train.py; false", cwd=tmp_path)
    assert done.exit_code == 5 and "train.py" in done.stderr
    assert sources(backend)["train.py"].endswith("# mine\n")


def test_source_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    root = tmp_path / "backend"
    root.mkdir()
    name = "a\x1b[2Jb\n.py" if sys.platform != "win32" else "a.py"
    (root / name).write_text("from torch.utils.data import DataLoader\n\nx = DataLoader(d)  # \x1b]0;owned\x07\n")
    for arguments in (["review", root], ["plan", root], ["apply", root]):
        done = run(*arguments, cwd=tmp_path, answers="x\nq\n")
        assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)
    assert "OptimalDataLoaderFactory" in (root / name).read_text()


def test_a_pipe_for_a_plan_is_not_waited_for(backend: Path, tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names here")
    os.mkfifo(tmp_path / "plan.json")
    for command in ("apply", "review"):
        done = run(command, backend, "--plan", "plan.json", cwd=tmp_path)
        assert done.exit_code == 2 and "plan.json cannot be read (the path is not a regular file)" in done.stderr


def test_the_plan_of_another_tree_is_not_overwritten(backend: Path, tmp_path: Path) -> None:
    reviewed(backend, "y\nn\nq\n", "--plan", "plan.json")
    kept = (tmp_path / "plan.json").read_bytes()
    other = write_files(tmp_path / "other", {"elsewhere.py": OTHER})
    refused = run("review", other, "--plan", "plan.json", cwd=tmp_path)
    assert refused.exit_code == 3 and "the plan of another project" in sentence(refused)
    (backend / "train.py").write_text(TRAIN + "\n# edited\n")
    run("review", backend, "--plan", "plan.json", cwd=tmp_path)
    assert (tmp_path / "plan.json").read_bytes() == kept


def test_ctrl_c_keeps_what_was_decided_and_says_where(backend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("chirp_migrate.cli.review._read_answer", stop)
    done = run("review", backend, "--plan", "plan.json", cwd=backend.parent)
    assert done.exit_code == 130 and "Saved in plan.json. To continue: chirp-migrate review" in done.stdout


def test_a_loader_and_its_copies_in_other_files_are_decided_together(tmp_path: Path) -> None:
    data = """import torch
from torch.utils.data import DataLoader, TensorDataset


def make_loader(x, y):
    return DataLoader(TensorDataset(x, y), batch_size=4, pin_memory=torch.cuda.is_available())


def make_other(x):
    return DataLoader(TensorDataset(x), batch_size=2)
"""
    train = """from data import make_loader


def train(model, x, y, device="cuda"):
    for inputs, labels in make_loader(x, y):
        inputs = inputs.to(device)
        model(inputs).backward()
"""
    evaluate = train.replace("def train", "def evaluate").replace(".backward()", "")
    files = {"data.py": data, "train.py": train, "evaluate.py": evaluate}
    root = write_files(tmp_path / "project", files)

    refused, counts = reviewed(root, "n\nn\n")
    assert counts == [0, 4, 0] and sources(root) == files
    shown = " ".join(refused.stdout.split())
    assert "decided together with: evaluate.py:6, train.py:6" in shown

    (tmp_path / "chirp-migrate-plan.json").unlink()
    done, counts = reviewed(root, "y\nn\ny\n")
    assert (done.exit_code, counts) == (0, [3, 1, 0])
    after = sources(root)
    assert "inputs.to(device, non_blocking=True)" in after["train.py"] and "non_blocking" in after["evaluate.py"]
    assert "DataLoader(TensorDataset(x), batch_size=2)" in after["data.py"]

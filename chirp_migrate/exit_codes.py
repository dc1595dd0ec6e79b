"""Exit codes of all commands, in one place; docs/exit-codes.md shows this table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of all commands. The attribute ``meaning`` of a code is one line of text."""

    meaning: str

    OK = 0, "done, or nothing to do; for check: clean; for verify: faster by the threshold, and equivalent"
    WORK_REMAINS = (
        1,
        "incomplete: some files could not be handled; for check: work for apply remains; for doctor: problems were "
        "found",
    )
    USAGE = 2, "the path, an option, a setting or a plan is invalid"
    REFUSED = (
        3,
        "refused, nothing was changed: work could be lost, another run is active, or pins contradict the runtime",
    )
    UNDONE = 4, "files or standard output could not be written; files that had been written were restored"
    CHECK_FAILED = 5, "the command given to --check-with failed, and everything was rolled back"
    NOT_SHOWN = 10, "verify: not shown to be faster"
    MODEL_BOUND = 11, "verify: model-bound, no loader could save that much"
    SLOWER = 12, "verify: slower"
    NOT_EQUIVALENT = 13, "verify: not the same training"
    WORKLOAD_FAILED = 14, "verify, tune, doctor: the project's own code failed"
    INCONCLUSIVE = 15, "verify --strict: faster, but some entry points are inconclusive"
    INTERNAL = 70, "a defect of chirp-migrate; --debug shows the traceback"
    INTERRUPTED = 130, "interrupted by Ctrl-C"
    PIPE_CLOSED = 141, "the program that reads the output ended"

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """Create a member with the value ``code`` and the attribute ``meaning``."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


def help_epilog(codes: dict[ExitCode, str], *examples: str) -> str:
    """Return the last part of a command's help: the exit codes with their meanings, and examples."""
    meanings = "; ".join(f"{int(code)} {text}" for code, text in codes.items())
    shown = "\n".join(f"  {example}" for example in examples)
    return f"Exit codes: {meanings}.\n\n\b\nExamples:\n{shown}"

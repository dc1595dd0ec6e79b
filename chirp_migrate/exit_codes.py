"""Define the exit codes of all commands. The table in docs/exit-codes.md lists the same codes and meanings."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of all commands. The attribute ``meaning`` describes the code in one line."""

    meaning: str

    OK = (
        0,
        "done, or nothing to do; for check: nothing to rewrite; for verify: the training is the same, and "
        "the saving reaches the threshold",
    )
    WORK_REMAINS = (
        1,
        "incomplete: some files could not be processed; for check: apply would still change something; for doctor: "
        "problems were found",
    )
    USAGE = 2, "the path, an option, a setting or a plan is invalid"
    REFUSED = (
        3,
        "refused, nothing was changed: your changes could be lost, another run is active, or the project pins versions "
        "that the runtime chirpid_patch does not support",
    )
    UNDONE = 4, "files or standard output could not be written; files that had been written were restored"
    CHECK_FAILED = 5, "the command after --check-with failed, and all changes were rolled back"
    NOT_SHOWN = 10, "verify: the migrated version was not shown to be faster"
    MODEL_BOUND = 11, "verify: model-bound, so no loader can save enough training time to reach the threshold"
    SLOWER = 12, "verify: the migrated version is slower"
    NOT_EQUIVALENT = 13, "verify: the training of the migrated version is not the same"
    WORKLOAD_FAILED = 14, "verify, tune, doctor: the project's own code failed"
    INCONCLUSIVE = 15, "verify --strict: faster, but the timing of some entry points is inconclusive"
    INTERNAL = 70, "internal error of chirp-migrate; --debug shows the traceback"
    INTERRUPTED = 130, "interrupted by Ctrl-C"
    PIPE_CLOSED = 141, "the program that reads the output ended before all output was written"

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """Create an exit code with the value ``code`` and the attribute ``meaning``."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


def help_epilog(codes: dict[ExitCode, str], *examples: str) -> str:
    """Return the end of a command's ``--help`` text: the exit codes with their meanings, and examples."""
    meanings = "; ".join(f"{int(code)} {text}" for code, text in codes.items())
    shown = "\n".join(f"  {example}" for example in examples)
    return f"Exit codes: {meanings}.\n\n\b\nExamples:\n{shown}"

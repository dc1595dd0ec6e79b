"""Write docs/schemas/*.json, the JSON Schema of each document, from the types of the document.

Run it with `python docs/make_schemas.py`.
"""

from __future__ import annotations

import json
from inspect import cleandoc
from pathlib import Path

import msgspec

from chirp_migrate.doctor.doctor_report import DoctorReport
from chirp_migrate.plans.plan_document import PlanDocument, PlanJson
from chirp_migrate.transaction.journal_schema import RunRecord
from chirp_migrate.tune.tune_report import TuneReport
from chirp_migrate.verify.verify_report import VerifyReport

TARGET = Path(__file__).resolve().parent / "schemas"

DOCUMENTS = {
    "doctor": DoctorReport,
    "journal": RunRecord,
    "plan": PlanDocument,
    "run": PlanJson,
    "tune": TuneReport,
    "verify": VerifyReport,
}


def schema(name: str) -> str:
    """Return the text of the file with the schema of a document."""
    found = msgspec.json.schema(DOCUMENTS[name])
    for one in found["$defs"].values():
        one["description"] = cleandoc(one.get("description", ""))  # newer versions of Python have done so already
        for value in one.get("properties", {}).values():
            if value.get("default") in ([], {}):
                del value["default"]  # only some versions of msgspec write the default of a new list or dictionary
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **found}, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for one in DOCUMENTS:
        (TARGET / f"{one}.json").write_text(schema(one), encoding="utf-8")

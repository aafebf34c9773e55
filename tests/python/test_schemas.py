# SPDX-License-Identifier: Apache-2.0
"""The published JSON schemas, against every committed record and every machine file."""

import gzip
import json
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
KINDS = {"tilescope.run/1": "run", "tilescope.ceilings/1": "ceilings", "tilescope.distributed/1": "distributed"}


def _loaded(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)


def _schema(name):
    schema = json.loads((ROOT / "reports/schemas" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def _complaint(validator, value):
    return next((f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)), None)


@pytest.mark.parametrize("kind", KINDS)
def test_every_committed_record_is_valid(kind):
    validator = _schema(KINDS[kind])
    judged = 0
    for path in sorted((ROOT / "reports").rglob("*.json*")):
        if path.parent.name == "schemas":
            continue
        record = _loaded(path)
        if not isinstance(record, dict) or record.get("schema") != kind:
            continue
        judged += 1
        for run in record.get("runs", []) if kind == "tilescope.distributed/1" else []:
            for one in run.get("passes", []):
                one.pop("flops_per_second", None)  # which older versions wrote, and nothing reads
        assert _complaint(validator, record) is None, path
    assert judged > 0


def test_every_machine_that_stands_alone_is_valid():
    validator = _schema("machine")
    for path in sorted((ROOT / "analysis/model/machine").glob("*.json")):
        machine = _loaded(path)
        if "base" not in machine:
            assert _complaint(validator, machine) is None, path


def test_a_record_with_a_field_too_many_or_too_few_is_not():
    validator = _schema("run")
    record = _loaded(ROOT / "reports/data/block-size.json.gz")
    entry = record["runs"][0]
    for damaged in (
        {**record, "schema": "tilescope.run/2"},
        {**record, "runs": [{**entry, "kernl": "cpu:flash2"}]},
        {**record, "runs": [{key: value for key, value in entry.items() if key != "kernel"}]},
        {**record, "runs": [{**entry, "problem": {**entry["problem"], "batch": "1"}}]},
    ):
        assert _complaint(validator, damaged) is not None

# SPDX-License-Identifier: Apache-2.0
"""The published JSON schemas, against every committed record and every machine file."""

import gzip
import json
import subprocess
from pathlib import Path

import jsonschema
import pytest
import tilescope as ts

ROOT = Path(__file__).parents[2]
KINDS = ["run", "ceilings", "distributed", "kernels", "explain", "tiles", "timeline", "self-test"]


def _loaded(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)


def _schema(name):
    schema = json.loads((ROOT / "reports/schemas" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def _inlined(node, definitions):
    """A schema with its definitions in place of the references to them, which jsonschema looks up for each value anew."""
    if isinstance(node, list):
        return [_inlined(one, definitions) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" not in node:
        return {key: _inlined(value, definitions) for key, value in node.items()}
    assert list(node) == ["$ref"] and node["$ref"].startswith("#/$defs/")
    return _inlined(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)


def _complaint(validator, value):
    return next((f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)), None)


@pytest.mark.parametrize("kind", KINDS)
def test_every_committed_record_is_valid(kind):
    schema = _schema(kind).schema
    validator = jsonschema.Draft202012Validator(_inlined(schema, schema.get("$defs", {})))
    judged = 0
    for path in sorted((ROOT / "reports").rglob("*.json*")):
        if path.parent.name == "schemas":
            continue
        record = _loaded(path)
        if not isinstance(record, dict) or record.get("schema") != f"tilescope.{kind}/1":
            continue
        judged += 1
        for run in record.get("runs", []) if kind == "distributed" else []:
            for one in run.get("passes", []):
                one.pop("flops_per_second", None)  # which older versions wrote, and nothing reads
        for kernel in record["kernels"] if kind == "explain" else []:
            kernel.pop("explanation")  # which is worked out anew, and was less in older versions
        assert _complaint(validator, record) is None, path
    assert judged > 0


def _written(folder, name, words):
    program = Path(ts.__file__).parent / "bin" / "tilescope"
    if not program.exists():
        pytest.skip("the program is not built")
    subprocess.run([program, *words.split(), "--quiet", "--json", folder / name], check=False)
    return _loaded(folder / name)


def test_an_explanation_is_valid(tmp_path):
    words = "--batch 2 --heads 16 --seqlen 4096 --dtype fp16 --head-dim 128"
    record = _written(tmp_path, "explain.json", f"explain {ROOT}/reports/foreign/mha.json.gz {words}")
    assert _complaint(_schema("explain"), record) is None
    assert all(kernel["explanation"]["answer"]["moved"]["dram"] for kernel in record["kernels"])


def test_a_diff_is_valid(tmp_path):
    for name, tile, lengths in ("base.json", "64x64", "512,1024"), ("new.json", "32x64", "1024,2048"):
        words = f"--kernel cpu:flash2 --heads 2 --tile {tile} --sweep seqlen={lengths}"
        _written(tmp_path, name, f"simulate {words}")
    record = _written(tmp_path, "diff.json", f"diff {tmp_path}/base.json {tmp_path}/new.json")
    assert _complaint(_schema("diff"), record) is None
    assert record["runs"][0]["changes"] and record["new_runs"] and record["gone_runs"]


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

# SPDX-License-Identifier: Apache-2.0
"""Every block of Python in the README and in the recipes, in its order."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks_of(page):
    """(package that it needs or "", source) of each block."""
    pattern = r"^```python(?: requires=(\w+))?\n(.*?)^```"
    blocks = re.findall(pattern, (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    return blocks


@pytest.mark.parametrize("page", ["README.md", pytest.param("python/RECIPES.md", marks=pytest.mark.torch)])
def test_the_blocks_run(page, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = {}
    for needed, block in blocks_of(page):
        if needed and importlib.util.find_spec(needed) is None:
            continue
        exec(compile(block, page, "exec"), names)  # the session that a reader pastes


def test_the_table_is_that_of_the_record(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests/python/on_device"))
    import page

    record, recipes = json.loads(page.RECORD.read_text()), page.PAGE.read_text()
    assert page.page_of(record, recipes) == recipes, "python3 tests/python/on_device/page.py"
    assert all(step["ok"] for step in record["steps"])
    own, *others = (page.found(record, "the same by ncu and by the command")[way] for way in page.WAYS)
    for other in others:
        for row, counted in zip(other, own, strict=True):
            assert row["kernel"] == counted["kernel"]
            assert abs(row["sm_l2_read_bytes"] - counted["sm_l2_read_bytes"]) <= 0.001 * counted["sm_l2_read_bytes"]


def test_the_recipe_for_pytest(byte_budget, monkeypatch):
    monkeypatch.chdir(ROOT)
    names = {}
    blocks = [block for _, block in blocks_of("python/RECIPES.md")]
    for block in (blocks[0], blocks[1], blocks[-1]):
        exec(block, names)
    names["test_forward_reads"](byte_budget)

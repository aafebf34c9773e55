# SPDX-License-Identifier: Apache-2.0
"""Counting where nothing can be counted: what is missing is said, and nothing is left held."""

import pytest
import tilescope as ts

pytestmark = pytest.mark.skipif(ts.info()["device_lack"] is None, reason="this machine has a device")


def test_what_is_missing_is_said_before_the_block_runs():
    for _ in range(2):  # the second is not told that the first still counts
        with pytest.raises(ts.MachineLacks):
            with ts.count():
                raise AssertionError("never run")

    @ts.counted
    def function():
        """What it does."""

    with pytest.raises(ts.MachineLacks):
        function()
    assert function.counts == [] and function.__doc__ == "What it does."
    with pytest.raises(ts.MachineLacks):
        ts.measure(function)


def test_refusals():
    with pytest.raises(ts.BadInput, match="l2"):
        with ts.count(l2="tepid"):
            pass
    with pytest.raises(ts.BadInput, match="launches"):
        ts.measure(print, launches=0)
    with pytest.raises(ts.BadInput, match="after the block"):
        ts.count().record  # noqa: B018

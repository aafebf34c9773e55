# SPDX-License-Identifier: Apache-2.0
"""Rows of records: a dictionary for each run and pass, for each launch of a kernel, or for each ceiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .problem import SCORE_MODS

_OUTPUTS = {"forward": ("o", "lse"), "backward": ("dq", "dk", "dv", "dsink")}
_ACCOUNTS = ("closed_form", "simulated", "measured", "time", "predicted")
_GPU_MEMORY = ("operand_bytes", "received_buffer_bytes", "state_bytes")
_OF_SCHEDULE = ("steps", "balance", "lock_step_balance", "least_link_bytes")  # which no run changes
PROBLEM_FIELDS = (
    "batch", "heads", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "dtype", "causal", "window", "scale",
    "dropout", "seed", "key_lengths",
)  # fmt: skip
RARE_FIELDS = (
    "mask", "descale_q", "descale_k", "descale_v", "descale_block", "head_dim_v", "page_size", "kv_dtype", "shared_kv", *SCORE_MODS,
)  # fmt: skip  # columns where a run has them
RUN_CHOICES = ("order", "scan", "pages", "inputs", "l2")
PASS_CHOICES = (
    "diagonal_slices", "fp8_sums", "variant", "backward", "warps", "stages", "dq_start", "splits", "query_splits", "pack_gqa",
)  # fmt: skip  # columns where a pass was told otherwise than its kernel would


def unit_of(metric: str) -> str:
    """From the last word of a metric's name, which is its unit."""
    key = metric.rpartition(".")[2]
    if key.startswith("lost_"):
        return ""  # a share of the time, whatever it was lost to
    for end, unit in (("_bytes", "B"), ("_s", "s"), ("_hz", "Hz"), ("flops", "FLOP")):
        if key.endswith(end):
            return unit
    return ""


def _numbers(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield prefix + key, value


def is_metric(column: str) -> bool:
    return "." in column or column in ("flops", "executed_flops")


def _problem_of(run: Mapping[str, Any]) -> dict[str, Any]:
    problem = run["problem"]
    fields = {field: problem.get(field) for field in PROBLEM_FIELDS}
    fields["window"] = tuple(problem["window"])
    fields["key_lengths"] = tuple(problem["key_lengths"]) if "key_lengths" in problem else None
    fields.update((field, tuple(problem[field]) if field == "descale_block" else problem[field])
                  for field in RARE_FIELDS if field in problem)  # fmt: skip
    return fields


def gpu_rows(run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    shared = {**_problem_of(run), "kernel": run.get("kernel"), "schedule": run["schedule"], "gpus": run["gpus"]}
    for entry in run.get("passes", ()):
        busiest = max(entry["gpus"], key=lambda gpu: gpu["link_sent_bytes"])
        row = {**shared, "pass": entry["name"]}
        row |= {f"link.{way}_bytes": busiest[f"link_{way}_bytes"] for way in ("sent", "received")}
        if "operand_bytes" in busiest:
            row["link.memory_bytes"] = sum(busiest[part] for part in _GPU_MEMORY)
        predicted = dict(entry.get("predicted", {}))
        lost = predicted.pop("lost", {})
        row.update(_numbers("predicted.", predicted))
        for cause, time in lost.items():
            row[f"predicted.lost_{cause.removesuffix('_s')}"] = time / predicted["time_s"]
        for key, value in _numbers("", {key: value for key, value in entry.items() if key != "repetitions"}):
            row[("closed_form." if key in _OF_SCHEDULE else "measured.") + key] = value
        yield row


def run_rows(run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    shared = {**_problem_of(run), "kernel": run["kernel"]}
    shared |= {key: run[key] for key in RUN_CHOICES if key in run}
    for entry in run["passes"]:
        tile = entry.get("tile", {})
        row = {
            **shared,
            "block_m": tile.get("block_m"),
            "block_n": tile.get("block_n"),
            "pass": entry["name"],
            "direction": entry["direction"],
            **{key: entry[key] for key in PASS_CHOICES if key in entry},
        }
        row.update(_numbers("", {key: entry[key] for key in ("flops", "executed_flops") if key in entry}))
        for account in _ACCOUNTS:
            row.update(_numbers(account + ".", entry.get(account, {})))
            if "machine" in entry.get(account, {}):
                row[account + "_on"] = entry[account]["machine"]
        for tensor in _OUTPUTS[entry["direction"]]:
            if error := run.get("error", {}).get(tensor):
                row[f"error.{tensor}.max_abs"] = error["max_abs"]
                row[f"error.{tensor}.of_bound"] = error.get("share", error["max_abs"] / error["bound"])
        yield row


def kernel_rows(kernel: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    row = {"kernel": kernel["name"]}
    launch = kernel.get("launch", {})
    for fact in ("grid", "block"):
        if fact in launch:
            row[fact] = tuple(launch[fact])
    row.update(_numbers("", {key: launch[key] for key in ("registers", "shared_bytes") if key in launch}))
    row.update(_numbers("", {key: kernel[key] for key in ("launches",) if key in kernel}))
    if "explanation" in kernel:
        fit = kernel["explanation"]
        row["agreement"] = fit["agreement"]
        if better := fit.get("other_heads"):
            row["other_heads"] = better["heads_over_batch"]
        row["program"] = ", ".join(program["program"] for program in fit["programs"]) or None
        row["block_m"] = tuple(sorted({tile[0] for program in fit["programs"] for tile in program["tiles"]}))
        if answer := fit.get("answer"):
            must = {key: value for key, value in answer.get("must", {}).items() if key != "from"}
            row["verdict"] = answer["verdict"]
            row.update(_numbers("must.", must))
            row.update(_numbers("multiple.", answer.get("multiple", {})))
            row.update(_numbers("", {key: fit[key] for key in ("by_chance",) if key in fit}))
        row.update(_numbers("left_over.", {key: fit[key] for key in ("read_residual_bytes", "write_residual_bytes")}))
    row.update(_numbers("measured.", kernel.get("measured", {})))
    row.update(_numbers("time.", kernel.get("time", {})))
    yield row


def ceiling_rows(ceiling: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield dict(ceiling)

#!/usr/bin/env python3
"""What the helper costs a launch, and an allocation with its free, against a driver whose calls do nothing: tables in Markdown, of one run.

    helper_cost.py HELPER RECORD

HELPER is libuvmd_helper.so, RECORD recorder's example. Each figure is the least of five runs, one of each kind in turn. Plans take root.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

# No compiled module beside the sources.
sys.dont_write_bytecode = True
from helper_plans import BEAT, BUDGET, FIRST_MOVE, GENERATION, GPU, MOVES, PERIOD, STATE, TABLE, Shared  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = 5
# Launches of a plan's iteration, of tests/helper/cost.c.
LAUNCHES = 100
ITERATIONS, COUNTED_MOVES, LATE = 32, 33, 34


def signature(function, grid, block, shared):
    """Of a kernel, as helper/call-ring/src/token.rs has it."""
    mask, value = (1 << 64) - 1, 1
    for word in (function, grid | 1 << 32 | 1 << 48, block | 1 << 32 | 1 << 48, shared, 0):
        value = (value ^ word) * 0x9E3779B97F4A7C15 & mask
        value ^= value >> 32
    return value >> 32


def child_of(process):
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while True:
        for pid in children.read_text(encoding="ascii").split():
            try:
                return Shared(pid)
            except (StopIteration, FileNotFoundError):
                pass
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def publish(words, moves):
    """A plan with a move to the GPU behind each so many launches, for which the launch before the next such one waits."""
    words[GPU], words[GPU + 1] = (int.from_bytes(b"\7" * 8, "little"),) * 2
    words[PERIOD], words[MOVES], words[BUDGET] = LAUNCHES, moves, 1 << 40
    for op in range(LAUNCHES):
        words[TABLE + 8 + op] = signature(0x5000, 100, 256, 0) << 32
    for at in range(moves):
        begin = at * LAUNCHES // moves
        words[FIRST_MOVE + 4 * at:FIRST_MOVE + 4 * at + 4] = [0x200000000000, 4096, 1, begin | (begin + LAUNCHES // moves) << 32]
    words[BEAT], words[GENERATION] = time.monotonic_ns(), 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("helper", type=pathlib.Path)
    parser.add_argument("record", type=pathlib.Path)
    options = parser.parse_args()
    source = ROOT / "tests" / "helper"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, file, flags in (("libcuda.so.1", "driver.c", ["-shared", "-fPIC"]), ("by_name.so", "by_name.c", ["-shared", "-fPIC", "-pthread"]), ("cost", "cost.c", [])):
            subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", folder / name, source / file, *flags], check=True)
        environment = dict(os.environ, LD_LIBRARY_PATH=str(folder))

        def cost(call, preload=None, blocks=4, record=None):
            command = [str(folder / "cost"), str(blocks), call]
            if record is not None:
                command = [str(options.record), *record, str(options.helper), str(folder / "calls"), *command]
            own = dict(environment, **({"LD_PRELOAD": preload} if preload else {}))
            done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
            if record is not None and "dropped: 0" not in done.stderr:
                raise SystemExit(f"calls were dropped: {done.stderr}")
            return float(done.stdout)

        def cost_of_plan(moves):
            command = [options.record, "--act", options.helper, folder / "calls", folder / "cost", "4", "launch"]
            process = subprocess.Popen([str(part) for part in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            words = child_of(process).words
            publish(words, moves)
            while process.poll() is None:
                words[BEAT] = time.monotonic_ns()
                time.sleep(0.2)
            out, said = process.communicate()
            assert "dropped: 0" in said, said
            # The half that is counted was launched by the plan.
            iterations = words[ITERATIONS]
            assert words[STATE] >> 56 in (1, 3) and iterations > 25 * 1000 // LAUNCHES, (hex(words[STATE]), iterations)
            handled[moves] = words[COUNTED_MOVES], words[LATE], iterations * moves
            return float(out)

        handled = {}
        kinds = {
            "no hook": lambda call: cost(call),
            "hooked by name, under a lock": lambda call: cost(call, str(folder / "by_name.so")),
            "helper, passing through": lambda call: cost(call, record=["--off"]),
            **{f"helper, recording, {blocks} blocks": lambda call, blocks=blocks: cost(call, blocks=blocks, record=[]) for blocks in (4, 64, 1024)},
        }
        of_launches = {
            "helper, following a plan without moves, 4 blocks": lambda _: cost_of_plan(0),
            "helper, following a plan with a move each 10 launches, 4 blocks": lambda _: cost_of_plan(10),
        }
        # Hooks by name are of launches alone.
        of_frees = {kind: run for kind, run in kinds.items() if "by name" not in kind}
        for call, name, rows in (("launch", "launch", kinds | of_launches), ("free", "allocation and free", of_frees)):
            least = {kind: float("inf") for kind in rows}
            for _ in range(RUNS):
                for kind, run in rows.items():
                    least[kind] = min(least[kind], run(call))
            print(f"| {name} | ns | of no hook |\n| --- | --: | --: |")
            for kind, each_ns in least.items():
                print(f"| {kind} | {each_ns:.1f} | {each_ns / least['no hook']:.2f} |")
            print()
        moves, late, begun = handled[10]
        print(f"Of {begun} moves, {moves} were made, {late} of those or others late.")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What the helper costs a launch, and an allocation with its free, against a driver whose calls do nothing: tables in Markdown, of one run.

    helper_cost.py HELPER RECORD

HELPER is libuvmd_helper.so, RECORD recorder's example. Each figure is the least of five runs, one of each kind in turn.
"""
import argparse
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = 5


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

        kinds = {
            "no hook": lambda call: cost(call),
            "hooked by name, under a lock": lambda call: cost(call, str(folder / "by_name.so")),
            "helper, passing through": lambda call: cost(call, record=["--off"]),
            **{f"helper, recording, {blocks} blocks": lambda call, blocks=blocks: cost(call, blocks=blocks, record=[]) for blocks in (4, 64, 1024)},
        }
        for call, name in (("launch", "launch"), ("free", "allocation and free")):
            # The other way hooks launches alone.
            least = {kind: float("inf") for kind in kinds if call == "launch" or "by name" not in kind}
            for _ in range(RUNS):
                for kind in least:
                    least[kind] = min(least[kind], kinds[kind](call))
            print(f"| {name} | ns | of no hook |\n| --- | --: | --: |")
            for kind, each_ns in least.items():
                print(f"| {kind} | {each_ns:.1f} | {each_ns / least['no hook']:.2f} |")
            print()


if __name__ == "__main__":
    main()

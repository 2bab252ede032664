#!/usr/bin/env python3
"""What the helper costs a launch, against a driver whose launches do nothing: a table in Markdown, of one run.

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

        def cost(preload=None, blocks=4, record=None):
            command = [str(folder / "cost"), str(blocks)]
            if record is not None:
                command = [str(options.record), *record, str(options.helper), str(folder / "calls"), *command]
            own = dict(environment, **({"LD_PRELOAD": preload} if preload else {}))
            done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
            if record is not None and "dropped: 0" not in done.stderr:
                raise SystemExit(f"calls were dropped: {done.stderr}")
            return float(done.stdout)

        kinds = {
            "no hook": lambda: cost(),
            "hooked by name, under a lock": lambda: cost(str(folder / "by_name.so")),
            "helper, passing through": lambda: cost(record=["--off"]),
            **{f"helper, recording, {blocks} blocks": lambda blocks=blocks: cost(blocks=blocks, record=[]) for blocks in (4, 64, 1024)},
        }
        least = {kind: float("inf") for kind in kinds}
        for _ in range(RUNS):
            for kind, run in kinds.items():
                least[kind] = min(least[kind], run())
        print("| launch | ns | of no hook |\n| --- | --- | --- |")
        for kind, each_ns in least.items():
            print(f"| {kind} | {each_ns:.1f} | {each_ns / least['no hook']:.2f} |")


if __name__ == "__main__":
    main()

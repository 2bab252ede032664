"""What the tests of the helper's thread have in common: programs that take lines, and memory that they share."""
import argparse
import ctypes
import mmap
import pathlib
import re
import subprocess
import sys
import tempfile
import time

# Longer than anything that happens.
SECONDS_MAX = 60
LAB_PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "lab/programs"


def within(what, condition, seconds=SECONDS_MAX):
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.002)
    return result


def uuid_of_nvidia():
    """Of the first GPU, as nvidia-smi has it."""
    said = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return said.splitlines()[0]


def add_programs(parser):
    """Options for programs of others."""
    parser.add_argument("--tinygrad", type=pathlib.Path, help="tinygrad, of which a training is run")
    parser.add_argument("--numba", type=pathlib.Path, help="an environment with Numba, of which kernels are run")


def tinygrad_environment(tinygrad, folder):
    return {"PYTHONPATH": str(tinygrad), "DEV": "CUDA:PTX", "PARALLEL": "0", "CACHEDB": str(folder / "cache")}


def tinygrad_training(iterations, *options):
    return [sys.executable, str(LAB_PROGRAMS / "train.py"), "mlp", "--iterations", str(iterations), *options]


def numba_kernels(numba):
    return [str(numba / "bin/python"), str(LAB_PROGRAMS / "kernels.py")]


def without_times(said):
    """What a program says that is the same each time: all but the seconds of programs, and the milliseconds of workloads."""
    return re.sub(rb'"seconds": [0-9.e-]+| +[0-9]+\.[0-9]{3} ', b"", said)


class SharedMemory:
    """Memory of a name that a process has mapped, word by word, as uvmd has it."""

    def __init__(self, pid, name, size):
        lines = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
        place = next(line.split()[0] for line in lines if f"memfd:{name}" in line)
        with open(f"/proc/{pid}/map_files/{place}", "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), size)
        self.words = (ctypes.c_uint64 * (size // 8)).from_buffer(self.memory)


class LineProgram:
    """A program that does what lines say, alone or with the helper in it."""

    def __init__(self, test, command, has_helper, environment):
        of_helper = {"LD_PRELOAD": test.helper, "UVMD_HELPER": "record"} if has_helper else {}
        self.child = subprocess.Popen(
            command, env={**test.environment, **of_helper, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
        )
        self.pid = self.child.pid

    def tell(self, line):
        self.child.stdin.write(line + "\n")

    def read(self):
        return self.child.stdout.readline().rstrip("\n")

    def do(self, line):
        self.tell(line)
        return self.read()


def run_tests(description, kind, tool, names_of, add_arguments=lambda parser: None):
    """Runs methods of a class, or the one that the command line names. `tool` is what the second argument is called, and
    `names_of` gives the methods by the options."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name in ("helper", tool, "cuda", "programs"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only", help="one of the tests, by the name of its function")
    add_arguments(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        test = kind(options, pathlib.Path(folder))
        for name in [options.only] if options.only else names_of(options):
            getattr(test, name)()

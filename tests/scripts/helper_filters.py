#!/usr/bin/env python3
"""Runs a program under filters of system calls (seccomp), with the helper and without: exit code and output are the same.

    helper_filters.py HELPER CUDA_FOLDER PROGRAMS

HELPER is libuvmd_helper.so, CUDA_FOLDER has the lab's libcuda.so.1, PROGRAMS what tests/helper/build made. Each call that the helper makes,
ever, is forbidden in each of three ways: the process ends, a handler of the program's is called, or the call fails.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

SECONDS_MAX = 120

# Calls of the helper, at any time: of crate `syscalls` and helper/hooks/src/system.rs, and of the C library where it starts its thread.
CALLS = {
    "read": 0, "close": 3, "mmap": 9, "mprotect": 10, "munmap": 11, "rt_sigprocmask": 14, "madvise": 28, "getpid": 39, "clone": 56, "exit": 60,
    "fcntl": 72, "ftruncate": 77, "prctl": 157, "gettid": 186, "futex": 202, "clock_gettime": 228, "openat": 257, "set_robust_list": 273,
    "fallocate": 285, "prlimit64": 302, "memfd_create": 319, "rseq": 334, "clone3": 435,
}
# Calls by which a library could try what a filter forbids, or look for what it is: none of them is made.
OTHERS = {"sched_yield": 24, "fork": 57, "vfork": 58, "wait4": 61, "kill": 62, "ptrace": 101, "tgkill": 234, "waitid": 247, "seccomp": 317}
EACH = {**CALLS, **OTHERS}
# Calls of the program and of its driver, whose number differs from run to run.
UNSTEADY = {"futex", "getpid", "madvise", "mmap", "munmap", "mprotect", "rt_sigprocmask"}
# All calls that the program makes once it has launched, without the helper.
OF_PROGRAM = ("write", 1), ("mmap", 9), ("munmap", 11), ("rt_sigreturn", 15), ("madvise", 28), ("getpid", 39), ("futex", 202), ("exit_group", 231)


def together(run, arguments):
    """Results of a function for each of these arguments, some at a time."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(lambda each: run(*each), arguments))


class Filters:
    def __init__(self, options):
        self.helper, self.program = str(options.helper), str(options.programs / "self_filtered")
        self.launcher = str(options.programs / "filtered")
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(options.cuda))
        self.failures = 0

    def under(self, command, *filters):
        """A program under filters that it begins with: an action, and the numbers of calls."""
        for action, *numbers in filters:
            command = [self.launcher, action, *map(str, numbers), "--", *command]
        return command

    def run(self, command, has_helper, environment=None):
        environment = {**self.environment, **(environment or {})}
        if has_helper:
            environment.update(LD_PRELOAD=self.helper, UVMD_HELPER="record")
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS_MAX, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def differs(self, what):
        self.failures += 1
        print(f"DIFFERENT: {what}")

    def same(self, what, *arguments, is_steady=True, **keywords):
        """A run with the helper ends as one without it."""
        said = [self.run(*arguments[:1], has_helper, **keywords) for has_helper in (False, True)]
        if not is_steady:
            said = [(code, re.sub(rb"trapped [1-9]\d*", b"trapped", out), errors) for code, out, errors in said]
        without, with_it = said
        # A program that does not come through may say anything on its way, as its loader does and each of its threads.
        if with_it != without and not without[0] == with_it[0] != 5:
            self.differs(f"{what}\n  without the helper {without}\n  with it            {with_it}")
        return without

    def of_program(self, when, action, name, number):
        is_steady = name not in UNSTEADY
        without = self.same(f"{when}, {action} {name}", [self.program, when, action, str(number)], is_steady=is_steady)
        return without[0] == 5

    def each_call(self):
        """Each call is forbidden by the program: before it initializes CUDA, when it has launched, and then for all of its threads."""
        runs = [(when, action, *call) for when in ("first", "later", "all") for action in ("kill", "trap", "errno") for call in EACH.items()]
        # Threads that wait for the filter keep the processors busy. The lab's driver never ends if its waits fail.
        runs = [run for run in runs if run[1] == "kill" or (run[0] != "all" and run[2] != "futex")]
        lived = sum(together(self.of_program, runs))
        # Otherwise all that is compared is how a program ends that makes the call itself.
        assert lived > len(runs) * 3 // 4, f"{lived} of {len(runs)} programs lived"
        print(f"{len(runs)} filters of the program: {lived} programs live, the others end by themselves")

    def own_calls_alone(self):
        """Once it has launched, a program may forbid all but the calls that it makes itself."""
        numbers, later = [str(number) for _, number in OF_PROGRAM], {"ACT_LATER": "1"}
        for when, environment in (("later", {}), ("all", {}), ("all", {"ACT": "1"}), ("later", later), ("all", later)):
            without = self.same(f"{when}, its own calls alone {environment}", [self.program, when, "only", *numbers], environment=environment)
            assert without[:2] == (5, b"counted 960, trapped 0\n"), without
        print("a filter that permits the program's own calls alone: for one thread, for all, for the helper's, and before that is started")

    def before_exec(self):
        """Filters that a program begins with: those of containers, services and sandboxes."""
        command = [self.program, "later", "errno", "999"]

        def begins_with(action, name, number):
            self.same(f"before exec, {action} {name}", self.under(command, (action, number)), is_steady=False)

        together(begins_with, [(action, *call) for action in ("kill", "errno") for call in EACH.items()])
        print("filters that a program begins with")

    def is_recorded(self, environment, *filters):
        """Whether a program has a ring, by its own memory map: that of a Python which has called the driver."""
        code = (
            "import ctypes\n"
            "driver = ctypes.CDLL('libcuda.so.1')\n"
            "driver.cuInit(0)\n"
            "print('memfd:uvmd-ring' in open('/proc/self/maps').read())\n"
        )

        code, out, errors = self.run(self.under([sys.executable, "-c", code], *filters), True, environment)
        assert code == 0 and not errors, (code, errors)
        return out == b"True\n"

    def permission(self):
        """Under a filter, the helper is off unless the operator admits all of the filters that the program begins with."""
        admitted = {"UVMD_HELPER_FILTERS": "1"}
        any_other, refuses = ("errno", 999), ("errno", CALLS["memfd_create"])
        expected = [
            ("no filter", {}, (), True),
            ("no filter, and one is admitted", admitted, (), True),
            ("a filter", {}, (any_other,), False),
            ("a filter that is admitted", admitted, (any_other,), True),
            ("a filter that is admitted, and refuses", admitted, (refuses,), False),
            ("two filters, and one is admitted", admitted, (any_other, any_other), False),
            ("two filters that are admitted", {"UVMD_HELPER_FILTERS": "2"}, (any_other, any_other), True),
            ("a filter, and no number is admitted", {"UVMD_HELPER_FILTERS": "all"}, (any_other,), False),
        ]
        for what, environment, filters, is_recorded in expected:
            if self.is_recorded(environment, *filters) != is_recorded:
                self.differs(f"{what}: the program is {'not ' if is_recorded else ''}recorded")
        # One of the program's own is not what the operator speaks of.
        def forbids(name, number):
            self.same(f"first, kill {name}, and a filter is admitted", [self.program, "first", "kill", str(number)], environment=admitted)

        together(forbids, [call for call in CALLS.items() if call[0] not in UNSTEADY])
        print("permission for filters that a program begins with")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("helper", "cuda", "programs"):
        parser.add_argument(name, type=pathlib.Path)
    filters = Filters(parser.parse_args())
    filters.each_call()
    filters.own_calls_alone()
    filters.before_exec()
    filters.permission()
    if filters.failures:
        sys.exit(f"{filters.failures} differences")


if __name__ == "__main__":
    main()

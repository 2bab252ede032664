#!/usr/bin/env python3
"""Runs programs with the helper and without it, in circumstances in which it could do harm: output and exit code are the same.

    helper_harm.py HELPER RECORD CUDA_FOLDER PROGRAMS [--tinygrad DIR] [--numba DIR] [--kills N] [--nvidia]

HELPER is libuvmd_helper.so, RECORD recorder's example, CUDA_FOLDER has libcuda.so.1, PROGRAMS what tests/helper/build
made. With --nvidia, the driver is NVIDIA's: it needs its descriptors, and answers a call beside an exit with an error.
"""
import argparse
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

# No compiled module beside the sources.
sys.dont_write_bytecode = True
from helper_program import add_programs, numba_kernels, tinygrad_environment, tinygrad_training, without_times  # noqa: E402

SECONDS_MAX = 120


def limit(kind, value):
    return lambda: resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


class Harm:
    def __init__(self, options, folder):
        self.helper, self.record, self.folder = str(options.helper), str(options.record), folder
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(options.cuda))
        self.programs_folder, self.is_nvidia = options.programs, options.nvidia
        self.program = str(options.programs / "program")
        self.trainings = {}
        if options.tinygrad:
            self.environment.update(tinygrad_environment(options.tinygrad, folder))
            self.trainings["tinygrad"] = tinygrad_training(5)
        if options.numba:
            self.trainings["Numba"] = numba_kernels(options.numba)
        self.failures = 0

    def differs(self, what):
        self.failures += 1
        print(f"DIFFERENT: {what}")

    def run(self, command, preload, before=None, environment=None):
        environment = {**self.environment, **(environment or {})}
        if preload:
            environment = {"UVMD_HELPER": "record", **environment, "LD_PRELOAD": preload}
        done = subprocess.run(
            command, env=environment, preexec_fn=before, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS_MAX, check=False
        )
        # Warnings have the numbers of processes.
        errors = b"" if command in self.trainings.values() else done.stderr
        return done.returncode, without_times(done.stdout), errors

    def same(self, what, command, before=None, environment=None, preload="{}"):
        """A run with the helper ends as one without it. In what is preloaded, {} stands for the helper."""
        without = self.run(command, preload.format("").strip(), before, environment)
        with_it = self.run(command, preload.format(self.helper), before, environment)
        if with_it == without:
            print(f"same: {what}")
        else:
            self.differs(f"{what}\n  without the helper {without}\n  with it            {with_it}")
        return without

    def least(self, kind, low, high):
        """Least limit at which the program works without the helper."""
        while low < high:
            middle = (low + high) // 2
            if self.run([self.program], "", limit(kind, middle))[:2] == (5, b"counted 1280\ncounted 1280\n"):
                high = middle
            else:
                low = middle + 1
        return high

    def programs(self):
        self.same("a program without CUDA", ["/bin/true"])
        self.same("a shell with children", ["/bin/sh", "-c", "ls / | sort | tail -n 2; exit 4"])
        self.same("a static program", [shutil.which("busybox"), "echo", "static"])
        self.same("a program of another C library", [str(self.programs_folder / "musl")])
        self.same("a program that loads libraries", [sys.executable, "-c", "import ctypes, sqlite3; print(ctypes.CDLL('libm.so.6').cos is not None)"])
        for what in ("run", "threads", "graph", "unload", "fork", "exec", "spawn", "closefrom", "mlockall"):
            code, out, _ = self.same(f"a program linked to the driver: {what}", [self.program, what])
            assert out.count(b"counted") >= 1 and (code == 5 or (self.is_nvidia and what == "closefrom")), out
        self.same("dlerror after a name like the driver's in another library", [self.program, "dlerror", str(self.programs_folder / "libother.so")])
        exits = [self.run([self.program, "exit"], self.helper)[:2] for _ in range(20)]
        # CUDA_ERROR_DEINITIALIZED, of a thread that goes on, without the helper as well.
        errors = (lambda out: re.sub(rb"cu\w+\(.*\): 4\n$", b"", out)) if self.is_nvidia else bytes
        codes = {1, 3} if self.is_nvidia else {3}
        if {code for code, _ in exits} <= codes and {errors(out) for _, out in exits} == {b"counted 1280\n"}:
            print("same: 20 exits while kernels are launched")
        else:
            self.differs(f"an exit while kernels are launched: {exits}")
        for what, command in self.trainings.items():
            code, out, _ = self.same(what, command)
            assert code == 0 and out, f"{what} alone: {code}"
        if os.geteuid() == 0:
            self.setuid()

    def setuid(self):
        program = self.folder / "setuid"
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o755 | stat.S_ISUID)
        self.same("a setuid program", [str(program), "-u"], before=lambda: os.setresuid(65534, 65534, 65534))

    def limits(self):
        self.same("no file may be written", [self.program], limit(resource.RLIMIT_FSIZE, 0))
        self.same("no memory may be locked, and all is to be", [self.program, "mlockall"], limit(resource.RLIMIT_MEMLOCK, 0))
        files = self.least(resource.RLIMIT_NOFILE, 3, 1024)
        for more in range(3):
            self.same(f"{files + more} open files", [self.program], limit(resource.RLIMIT_NOFILE, files + more))
        # The program itself needs some MiB more or less, by how its threads run.
        memory = self.least(resource.RLIMIT_AS, 1 << 20, 1 << 46)
        for more in (8, 16, 32, 64):
            self.same(f"address space for {more} MiB more than it needs", [self.program], limit(resource.RLIMIT_AS, memory + (more << 20)))
        if os.geteuid() == 0:
            full = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4k nodev /dev/shm && head -c 4096 /dev/zero >/dev/shm/full && exec "$0"']
            self.same("a full /dev/shm", [*full, self.program])

    def beside_others(self):
        other = str(self.programs_folder / "libother.so")
        reports = {"OTHER_PRELOAD_REPORTS": "1"}
        python = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0); print('initialized')"]
        for command in ([self.program], python):
            self.same("another library before the helper", command, environment=reports, preload=f"{other} {{}}")
            # It sees that dlsym is called by the helper, where the driver itself calls none.
            self.same("another library behind the helper", command, environment={} if self.is_nvidia else reports, preload=f"{{}} {other}")
        driver = str(pathlib.Path(self.environment["LD_LIBRARY_PATH"]) / "libcuda.so.1")
        opened = lambda library, *how: [str(self.programs_folder / "deep"), str(self.programs_folder / f"deep_{library}.so"), *how]
        for how in ("filtered", "origin"):
            self.same(f"a library opened with RTLD_DEEPBIND, {how}", opened("linked_now", how))
        for how in ("now", "lazy"):
            code, out, _ = self.same(f"a library opened with RTLD_DEEPBIND that is linked to another driver, {how}", opened(f"emulated_{how}", how, driver))
            assert code == 1 and b"cuInit(0) failed" in out, out
        for library in ("linked_now", "linked_lazy", "finds_now", "finds_lazy", "depends_now"):
            deep = opened(library, library.split("_")[1])
            self.same(f"a library opened with RTLD_DEEPBIND, {library}", deep)
            self.same(f"another library before the helper, and one opened with RTLD_DEEPBIND, {library}", deep, preload=f"{other} {{}}")
        limiter, reports = str(self.programs_folder / "liblimiter.so"), {"LIMITER_REPORTS": "1"}
        for command in ([self.program, "threads"], [str(self.programs_folder / "handles")], [str(self.programs_folder / "handles"), "process"]):
            for order in (f"{limiter} {{}}", f"{{}} {limiter}"):
                about = f"a library that limits memory and replaces dlsym, {order.index('{}') and 'before' or 'after'} the helper: {command[0]}"
                self.same(about, command, environment=reports, preload=order)
        self.same("an injection path of CUDA", [self.program], environment={"CUDA_INJECTION64_PATH": "/nonexistent.so"})
        alone = self.folder / "libuvmd_helper.so"
        shutil.copy(self.helper, alone)
        if self.run([self.program], str(alone)) == self.run([self.program], ""):
            print("same: a helper without its second stage")
        else:
            self.differs("a helper without its second stage")

    def stubs(self):
        """A program that is linked to a stub of the driver gets what the stub answers, whether the helper is off or on."""
        for what, environment in (("on", {}), ("off", {"UVMD_HELPER": "off"})):
            for hashes, program in (("GNU's", "stubbed"), ("the specification's", "stubbed_sysv")):
                about = f"a program linked to a stub of the driver with {hashes} hash table, the helper {what}"
                _, out, _ = self.same(about, [str(self.programs_folder / program)], environment=environment)
                assert b"cuDevicePrimaryCtxRetain(&context, 0): 3\n" in out and b"cuMemFree_v2(memory): 0\n" in out, out

    def refused_calls(self):
        """Arguments of calls that the driver refuses may be anything: the helper reads none of them."""
        refusing = {"LD_LIBRARY_PATH": str(self.programs_folder / "refusing")}
        code, _, errors = self.same("calls that the driver refuses", [str(self.programs_folder / "refused")], environment=refusing)
        assert code == 5 and not errors, (code, errors)

    def lifetimes(self):
        """Libraries, threads and processes end in any order, without the helper's thread and with it."""
        program, folder = str(self.programs_folder / "lifetimes"), pathlib.Path(self.helper).resolve().parent
        paths = {"LD_LIBRARY_PATH": f"{self.environment['LD_LIBRARY_PATH']}:{folder}"}
        for act, environment in (("", paths), (", with the helper's thread", {**paths, "ACT": "1"})):
            for what in ("plain", "fork-first", "destructors", "exit", "fork-in-thread", "vfork", "exec-in-thread", "first-thread-ends"):
                code, out, errors = self.same(f"lifetimes: {what}{act}", [program, what], environment=environment)
                assert code == 5 and not errors, (code, out, errors)
            for what in ("open-first", "open-in-thread", "open"):
                plain = self.run([program, what, "libm.so.6"], "", environment=environment)
                for preload in ("", self.helper):
                    if self.run([program, what, self.helper], preload, environment=environment) != plain:
                        self.differs(f"lifetimes: {what}{act}, the helper itself, preloaded: {preload != ''}")
            uses = [program, "open", str(self.programs_folder / "libuses.so")]
            code, out, _ = self.same(f"lifetimes: an object that is linked to the helper is opened and closed{act}", uses, environment=environment)
            assert code == 5 and out.count(b"used 64\n") == 3, out
        stand_in = {"LD_LIBRARY_PATH": str(self.programs_folder / "stand-in")}
        self.same("lifetimes: data of threads whose destructors call the driver", [program, "keys"], environment=stand_in)

    def loading(self):
        """Threads call the driver while the loader runs constructors and destructors, which wait for them."""
        stand_in = {"LD_LIBRARY_PATH": str(self.programs_folder / "stand-in")}
        programs, library = self.programs_folder, str(self.programs_folder / "libloaded.so")
        for program, arguments, turns in (("loading", [library], 3), ("loading_linked", [library], 3), ("loading_first", [], 1)):
            command = [str(programs / program), *arguments]
            for direct in ({}, {"DIRECT": "1"}):
                for what, environment in (("on", {}), ("off", {"UVMD_HELPER": "off"})):
                    environment = {**environment, **direct, **stand_in}
                    code, out, errors = self.same(f"{program} {direct}, the helper {what}", command, environment=environment)
                    assert code == 5 and out.count(b"unloaded\n") == turns and not errors, (code, out, errors)
                # Another thread's call that comes before the loader has called the helper is not waited for.
                if arguments or direct:
                    _, out, _ = self.run(command, self.helper, environment={"RECORDED": "1", **direct, **stand_in})
                    # Nor is a driver kept that comes with the library, until the program asks for a function of that.
                    turns_before = 1 if program == "loading" else 0
                    recorded = re.findall(rb"recorded: (\d)", out)
                    if recorded != [b"0"] * turns_before + [b"1"] * (turns - turns_before):
                        self.differs(f"{program} {direct}: whether calls of constructors are recorded: {recorded}")

    def unloading(self):
        """The driver comes and goes, as a whole and in part, while threads call it and processes fork: no call goes where it is not."""
        programs, stand_in = self.programs_folder, {"LD_LIBRARY_PATH": str(self.programs_folder / "stand-in")}
        driver, caller = programs / "stand-in/libcuda.so.1", programs / "libcaller.so"
        for what, environment in (("on", stand_in), ("off", {"UVMD_HELPER": "off", **stand_in})):

            def ends(about, command, out, environment=environment, what=what):
                _, output, errors = self.same(f"{about}, the helper {what}", [str(word) for word in command], environment=environment)
                assert output == out and not errors, (output, errors)

            reopened = b"cuInit: 0\nclosed: 0\n" * 3
            ends("a driver that is unloaded and loaded again", [programs / "reopened", caller, "initializes"], reopened)
            ends("the same, of a library with a constructor", [programs / "reopened", programs / "libconstructed.so"], reopened)
            ends("a weak reference, and a library that cannot be opened", [programs / "optional", programs / "libbroken.so", 300], b"opened: 0\n")
            for _ in range(10):
                ends("a weak reference, and a driver that is being loaded", [programs / "optional", programs / "relocated/libcuda.so.1", 1], b"opened: 1\n")
            none_hangs = b"hung: 0, failed: 0\n"
            ends("forks", [programs / "forks", caller, "initializes"], none_hangs)
            for call in ("whole", "handle"):
                ends(f"without CUDA, forks during calls of the loader: {call}", [programs / "asking", "forks", call], none_hangs)
                ends(f"without CUDA, a search of the libraries that waits for such a call: {call}", [programs / "asking", "waits", call], b"waited: 1\n")
            command = [str(programs / "opened_first"), self.helper, str(driver)]
            done = self.run(command, "", environment={"UVMD_HELPER": "record", **environment})
            allocated = b"allocated: 1, searches: "
            expected = b"%ssome\n%snone\n%snone\nrecorded: %d\n" % (allocated, allocated, allocated, what == "on")
            if done != (5, expected, b""):
                self.differs(f"the helper is opened before the driver, {what}: {done}")
            command = [str(programs / "forks"), self.helper, "cuInit"]
            _, output, _ = self.run(command, "", environment={"DRIVER": str(driver), "UVMD_HELPER": "record", **environment})
            if output != none_hangs:
                self.differs(f"forks: the helper itself is opened, {what}: {output}")

    def kills(self, count):
        """uvmd dies at any time, and so does the program: the other side goes on."""
        generator = random.Random(1)
        for _ in range(count):
            reader = subprocess.Popen(
                [self.record, self.helper, str(self.folder / "calls"), self.program, "threads"],
                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )
            time.sleep(generator.uniform(0, 0.05))
            # Without a child yet, there may never be one.
            has_program = bool(pathlib.Path(f"/proc/{reader.pid}/task/{reader.pid}/children").read_text(encoding="ascii"))
            reader.kill()
            # The program has the pipe, and ends it when it ends: with all that it prints, unless it crashed.
            out, _ = reader.communicate(timeout=SECONDS_MAX)
            if out != b"counted 1280\nthreads counted 30720\ncounted 1280\n" and (has_program or out):
                self.differs(f"the reader was killed: {out}")
        for _ in range(count):
            reader = subprocess.Popen(
                [self.record, self.helper, str(self.folder / "calls"), self.program, "for-ever"],
                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            # Until the program has begun; then at any time.
            reader.stdout.readline()
            time.sleep(generator.uniform(0, 0.05))
            children = pathlib.Path(f"/proc/{reader.pid}/task/{reader.pid}/children").read_text(encoding="ascii").split()
            os.kill(int(children[0]), signal.SIGKILL)
            _, output = reader.communicate(timeout=SECONDS_MAX)
            # Killed before its ring was looked for, or after.
            is_early = b"no ring was found" in output
            if not is_early and (reader.returncode != 255 or b"invalid: 0" not in output):
                self.differs(f"the program was killed: {reader.returncode} {output}")
        print(f"{count} kills of each side")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("helper", type=pathlib.Path)
    parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("cuda", type=pathlib.Path)
    parser.add_argument("programs", type=pathlib.Path)
    add_programs(parser)
    parser.add_argument("--nvidia", action="store_true")
    parser.add_argument("--kills", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        harm = Harm(options, folder)
        harm.programs()
        harm.limits()
        harm.beside_others()
        if not harm.is_nvidia:
            harm.stubs()
            harm.lifetimes()
            harm.loading()
            harm.unloading()
            harm.refused_calls()
        harm.kills(options.kills)
        if harm.failures:
            sys.exit(f"{harm.failures} differences")


if __name__ == "__main__":
    main()

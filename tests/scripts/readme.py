#!/usr/bin/env python3
"""Run the commands of README.md: those of uvmctl against a running uvmd, and those of scripts as far as their --help.

  tests/scripts/readme.py URL READ_TOKEN_FILE WRITE_TOKEN_FILE
"""

import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"^    (?:\$ )?(?:sudo )?((?:target/release|scripts)/\S+[^#\n]*)", re.MULTILINE)
UVMCTL = "target/release/uvmctl"
# Exit codes that are no failure here: doctor looks at the node, which has no driver outside the guest.
OTHER_CODES = {"doctor": {1}}
TIMEOUT_S = 120


def commands() -> list[str]:
    """The commands of README's blocks of code, each once, without remarks."""
    blocks = COMMAND.findall((ROOT / "README.md").read_text())
    parts = [part.strip() for block in blocks for part in block.split(" && ")]
    return list(dict.fromkeys(parts))


def uvmctl(words: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a command."""
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    return done.returncode, done.stdout + done.stderr


def live(words: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """The same of a live view, on a terminal: q is typed once something is shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        termios.tcsetwinsize(0, (24, 80))
        os.execve(words[0], words, {**environment, "TERM": "xterm"})
    shown, quit_sent, deadline = b"", False, time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
        if b"PID" in shown and not quit_sent:
            quit_sent = True
            os.write(terminal, b"q")
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode(errors="replace")


def stream(words: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """The same of a command that goes on until it is interrupted: its first line, and 0 if there is one."""
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    has_line = bool(select.select([process.stdout], [], [], TIMEOUT_S)[0])
    line = process.stdout.readline() if has_line else ""
    process.terminate()
    process.communicate()
    return (0 if line else 1), line


def pid_of(url: str) -> str:
    """A running process with managed memory, as soon as there is one."""
    for _ in range(TIMEOUT_S):
        done = subprocess.run(["curl", "-fsS", "-m", "5", f"{url}/api/v1/processes"], capture_output=True, text=True)
        if done.returncode == 0:
            running = [each["pid"] for each in json.loads(done.stdout)["processes"] if each["exited_at"] is None]
            if running:
                return str(running[0])
        time.sleep(1)
    sys.exit("no process with managed memory")


def main() -> int:
    url, read_token, write_token = sys.argv[1:]
    pid, failed, ran = pid_of(url), [], 0
    for command in commands():
        words = [pid if word == "PID" else word for word in shlex.split(command)]
        if words[0] != UVMCTL:
            help_text = uvmctl([words[0], "--help"], dict(os.environ))[1]
            options = [word for word in words[1:] if word.startswith("--")]
            if missing := [option for option in options if option not in help_text]:
                failed.append(f"{command}: its --help has no {missing}")
            continue
        changes = words[1] == "policy" and words[2] in {"set", "unset", "off", "on", "apply"}
        environment = {**os.environ, "UVMD_URL": url, "UVMD_TOKEN_FILE": write_token if changes else read_token}
        code, output = {"top": live, "events": stream}.get(words[1], uvmctl)(words, environment)
        ran += 1
        print(f"    {code}  {command}", file=sys.stderr)
        if code not in {0} | OTHER_CODES.get(words[1], set()) or not output.strip():
            failed.append(f"{command}: exit code {code}\n{output}")
    if ran < 10:
        failed.append(f"only {ran} commands of uvmctl found in README.md")
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

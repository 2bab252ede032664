"""The crates that are linked into uvmd, uvmctl and the probes: neither tools of their builds nor of their tests."""

import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Manifests, with the crates that become programs of the packages.
PROGRAMS = {"Cargo.toml": ("uvmd", "uvmctl"), "ebpf/Cargo.toml": ("ebpf",)}
# Built by the same command in scripts/build: what these turn on in a dependency is on in the programs.
BUILT_TOO = {"Cargo.toml": ("lab-runner", "workloads")}
LINE = re.compile(r"^(\d+)(\S+) v(\S+)(.*)$", re.MULTILINE)


def cargo(command: str, manifest: str, *options: str) -> str:
    return subprocess.check_output(["cargo", command, "--locked", *options, "--manifest-path", str(ROOT / manifest)], text=True, cwd=ROOT)


def host() -> str:
    """The target that packages are built for."""
    version = subprocess.check_output(["rustc", "-vV"], text=True, cwd=ROOT)
    return next(line.removeprefix("host: ") for line in version.splitlines() if line.startswith("host: "))


def linked(manifest: str, roots: tuple[str, ...]) -> set[tuple[str, str]]:
    """Names and versions, those of the roots and of other crates of the repository among them.

    A macro is one of them, as a part of it may become code of ours. What it needs itself is not. By `cargo tree`, as `cargo metadata` also has crates that
    only features of tests turn on.
    """
    packages = [word for root in (*roots, *BUILT_TOO.get(manifest, ())) for word in ("--package", root)]
    tree = cargo("tree", manifest, *packages, "--edges", "normal", "--target", host(), "--prefix", "depth", "--no-dedupe", "--charset", "ascii")
    found, macro, wanted = set(), None, False
    for depth, name, version, rest in LINE.findall(tree):
        if depth == "0":
            wanted = name in roots
        if not wanted or (macro is not None and int(depth) > macro):
            continue
        macro = int(depth) if "(proc-macro)" in rest else None
        found.add((name, version))
    return found


def all_linked() -> dict[tuple[str, str], dict]:
    """Their packages, as `cargo metadata` describes them."""
    found = {}
    for manifest, roots in PROGRAMS.items():
        names = linked(manifest, roots)
        data = json.loads(cargo("metadata", manifest, "--format-version", "1", "--filter-platform", host()))
        found |= {key: package for package in data["packages"] if (key := (package["name"], package["version"])) in names}
    return found

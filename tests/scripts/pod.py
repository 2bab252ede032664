#!/usr/bin/env python3
"""Configure an OCI bundle like a pod of deploy/kubernetes: pod.py BUNDLE WORK.

The container's capabilities, mounts, namespaces and environment are those of the DaemonSet of the overlay `observe`, as a runtime sets
them with cgroup version 2: a container that is not privileged has its own cgroup namespace. Folders of the node are in WORK. Prints the command of the
liveness probe.
"""

import json
import subprocess
import sys
from pathlib import Path

import yaml

OVERLAY = Path(__file__).resolve().parents[2] / "deploy/kubernetes/overlays/observe"
# Bits of the kernel's capabilities.
CAPABILITIES = {"SYS_PTRACE": 19, "SYS_ADMIN": 21, "SYS_RESOURCE": 24, "PERFMON": 38, "BPF": 39}


def own_capabilities() -> int:
    """Capabilities of this process, as a mask: a sandbox may lack some."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("CapEff:")[1].split()[0], 16)


def config_map(folder: Path, data: dict[str, str]) -> Path:
    """A folder with the files of a ConfigMap, as the kubelet makes it."""
    version = folder / "..2026_11_30"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, text in data.items():
        (version / name).write_text(text)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def main(bundle: Path, work: Path) -> None:
    text = subprocess.run(["kubectl", "kustomize", str(OVERLAY)], check=True, capture_output=True, text=True).stdout
    objects = {each["kind"]: each for each in yaml.safe_load_all(text) if each}
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    container = next(each for each in pod["containers"] if each["name"] == "uvmd")
    context = container["securityContext"]
    config = json.loads((bundle / "config.json").read_text())

    sources = {}
    for volume in pod["volumes"]:
        name = volume["name"]
        if "configMap" in volume:
            sources[name] = config_map(work / name, objects["ConfigMap"]["data"])
        elif "hostPath" in volume and volume["hostPath"]["type"] == "DirectoryOrCreate":
            sources[name] = work / name
            sources[name].mkdir(mode=0o755)
        elif "hostPath" in volume:
            sources[name] = Path(volume["hostPath"]["path"])
        elif "emptyDir" in volume:
            sources[name] = work / name
            (sources[name] / "overrides.d").mkdir(parents=True, mode=0o777)
    config["mounts"] = [each for each in config["mounts"] if each["destination"] not in ("/sys", "/sys/fs/cgroup", "/etc/resolv.conf", "/etc/hosts")]
    config["mounts"].append({"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]})
    for mount in container["volumeMounts"]:
        source = sources[mount["name"]] / mount.get("subPath", "")
        config["mounts"].append(
            {"destination": mount["mountPath"], "type": "bind", "source": str(source), "options": ["rbind", "ro" if mount.get("readOnly") else "rw"]}
        )

    mask = own_capabilities()
    added = context["capabilities"]["add"]
    if lacking := [name for name in added if not mask >> CAPABILITIES[name] & 1]:
        print(f"without {', '.join(lacking)}, which this machine does not have", file=sys.stderr)
    capabilities = [f"CAP_{name}" for name in added if mask >> CAPABILITIES[name] & 1]
    process = config["process"]
    process.pop("rlimits", None)
    process |= {
        "terminal": False,
        "noNewPrivileges": False,
        "user": {"uid": context["runAsUser"], "gid": context["runAsGroup"]},
        "capabilities": {kind: capabilities for kind in ("bounding", "effective", "permitted")},
        "env": [*process["env"], "UVMD_HOSTNAME=node-of-the-pod"],
    }
    config["root"]["readonly"] = context["readOnlyRootFilesystem"]
    # hostPID: none of its own.
    config["linux"]["namespaces"] = [{"type": kind} for kind in ("mount", "uts", "ipc", "network", "cgroup")]
    for key in ("resources", "seccomp"):
        config["linux"].pop(key, None)
    (bundle / "config.json").write_text(json.dumps(config))
    print(" ".join(container["livenessProbe"]["exec"]["command"]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: pod.py BUNDLE WORK")
    main(Path(sys.argv[1]), Path(sys.argv[2]))

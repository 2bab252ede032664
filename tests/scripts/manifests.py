#!/usr/bin/env python3
"""Test the chart and its manifests: valid for each version of Kubernetes, no privilege beyond that of the mode, and the names of an installation.

`scripts/kubernetes --check` runs it in an environment with Helm's library and the schemas.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import helm_python
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
CHART = KUBERNETES / "chart"
VERSIONS = [f"1.{minor}" for minor in range(28, 36)]
# Kinds of the Prometheus operator: their schemas are not those of Kubernetes.
OPERATOR = {"PodMonitor", "PrometheusRule"}


def render(values: dict) -> list[dict]:
    """Objects of the chart."""
    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        output = chart.render(values, name="uvmd", namespace="uvmd")
    return [each for text in output.values() for each in yaml.safe_load_all(text) if each]


def of_kind(objects: list[dict], kind: str) -> list[dict]:
    return [each for each in objects if each["kind"] == kind]


def pod(objects: list[dict]) -> dict:
    return of_kind(objects, "DaemonSet")[0]["spec"]["template"]["spec"]


def container(objects: list[dict], name: str) -> dict:
    return next(each for each in pod(objects)["containers"] if each["name"] == name)


def rules(objects: list[dict]) -> dict[str, dict]:
    return {
        rule.get("alert") or rule["record"]: rule for each in of_kind(objects, "PrometheusRule") for group in each["spec"]["groups"] for rule in group["rules"]
    }


MONITORED = {"monitoring": {"enabled": True}}
# An installation with other names than the defaults, and all options.
OTHER = {
    "mode": "act",
    "image": {"repository": "registry.example.org/uvmd", "digest": f"sha256:{'0' * 64}"},
    "fleet": {"enabled": True, "args": ["--label=team"]},
    "metrics": {"webConfigSecret": "web", "port": 9500},
    "hostNetwork": True,
    "runtimeClassName": "nvidia",
    "config": {"50-records.toml": "[records]\nenabled = false\n"},
    "monitoring": {
        "enabled": True,
        "job": "gpu/uvmd",
        "clusterLabel": "k8s_cluster",
        "clusterName": "north",
        "docs": "https://wiki.example.org/uvmd/docs",
        "thresholds": {"faultLatency": 0.25, "ownerMemoryGrowth": 5368709120},
        "alerts": {"UvmdActingSwitchedOff": {"enabled": False}, "UvmOwnerThrashing": {"for": "30m", "severity": "info"}},
    },
}


def validated(objects: list[dict]) -> None:
    for version in VERSIONS:
        for each in objects:
            if each["kind"] not in OPERATOR:
                kubernetes_validate.validate(each, version, strict=True)


def each_overlay_is_valid_for_all_versions() -> None:
    for folder in ["overlays/observe", "overlays/act", "monitoring"]:
        text = subprocess.run(["kubectl", "kustomize", str(KUBERNETES / folder)], check=True, capture_output=True, text=True).stdout
        validated([each for each in yaml.safe_load_all(text) if each])


def the_chart_is_valid_with_all_values() -> None:
    for values in [{}, MONITORED, OTHER, {"fleet": {"enabled": False}, "sysAdmin": False, "nodeLabels": []}]:
        validated(render(values))
    found = [each for each in helm_python.lint(str(CHART))["messages"] if "icon" not in each["error"]]
    assert not found, found


def a_field_that_kubernetes_does_not_have_is_found() -> None:
    daemonset = of_kind(render({}), "DaemonSet")[0]
    daemonset["spec"]["template"]["spec"]["hostPid"] = True
    try:
        kubernetes_validate.validate(daemonset, VERSIONS[-1], strict=True)
    except kubernetes_validate.ValidationError:
        return
    raise AssertionError("a wrong field is valid")


def observing_has_five_capabilities_and_writes_only_its_own_folders() -> None:
    uvmd = container(render({}), "uvmd")
    context = uvmd["securityContext"]
    assert "privileged" not in context
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["BPF", "PERFMON", "SYS_PTRACE", "SYS_RESOURCE", "SYS_ADMIN"]}
    assert not uvmd["image"].endswith("-act")
    writable = {each["mountPath"] for each in uvmd["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"/run/uvmd", "/var/lib/uvmd"}, writable
    assert "SYS_ADMIN" not in container(render({"sysAdmin": False}), "uvmd")["securityContext"]["capabilities"]["add"]


def acting_begins_in_shadow() -> None:
    objects = render({"mode": "act"})
    assert container(objects, "uvmd")["image"].endswith("-act")
    assert container(objects, "uvmd")["securityContext"]["privileged"]
    assert 'mode = "shadow"' in of_kind(objects, "ConfigMap")[0]["data"]["10-kubernetes.toml"]


def only_uvmd_fleet_has_credentials() -> None:
    objects = render({})
    assert pod(objects)["automountServiceAccountToken"] is False
    assert pod(objects)["serviceAccountName"] == "uvmd-fleet"
    assert pod(render({"fleet": {"enabled": False}}))["serviceAccountName"] == "uvmd"
    mounts = {name: {each["name"] for each in container(objects, name)["volumeMounts"]} for name in ("uvmd", "fleet")}
    assert "token" not in mounts["uvmd"]
    assert mounts["fleet"] == {"fleet", "token"}, mounts
    context = container(objects, "fleet")["securityContext"]
    # That of distroless images would let it read other pods' programs through the node's PID namespace.
    assert context["runAsUser"] not in (0, 1000, 65532, 65534), context
    assert context["runAsNonRoot"] and context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}


def default_rules_are_those_of_the_repository() -> None:
    made = rules(render({"monitoring": {"enabled": True, "docs": "https://docs.example.org"}}))
    sources = {}
    for file in sorted((ROOT / "dashboards/alerts").glob("*.rules.yaml")):
        text = file.read_text().replace("file:///usr/share/doc/uvmd/docs", "https://docs.example.org")
        sources |= {rule.get("alert") or rule["record"]: rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
    different = [name for name in made.keys() | sources.keys() if made.get(name) != sources.get(name)]
    assert not different, different


def rules_and_dashboards_have_the_names_of_the_installation() -> None:
    objects = render(OTHER)
    made = rules(objects)
    assert 'up{job="gpu/uvmd"}' in made["UvmdDown"]["expr"]
    assert "> 0.25" in made["UvmFaultLatencyHigh"]["expr"]
    assert "> 5368709120" in made["UvmOwnerMemoryGrowing"]["expr"]
    assert "UvmdActingSwitchedOff" not in made
    assert (made["UvmOwnerThrashing"]["for"], made["UvmOwnerThrashing"]["labels"]["severity"]) == ("30m", "info")
    assert made["UvmdDown"]["annotations"]["runbook_url"] == "https://wiki.example.org/uvmd/docs/runbooks/UvmdDown.md"
    boards = [json.loads(text) for each in of_kind(objects, "ConfigMap") for name, text in each["data"].items() if name.endswith(".json")]
    assert len(boards) == len(list((ROOT / "dashboards/grafana").glob("*.json")))
    exprs = [target["expr"] for board in boards for panel in board["panels"] for target in panel.get("targets", [])]
    assert any("k8s_cluster=~" in expr for expr in exprs)
    assert not [expr for expr in exprs if " cluster=~" in expr or "{cluster=~" in expr or "(cluster," in expr]
    everything = json.dumps(objects)
    assert "file://" not in everything
    assert "@cluster@" not in everything and "@job@" not in everything and "@docs@" not in everything and "@threshold" not in everything


def links_lead_to_what_can_be_reached() -> None:
    for values, is_published in [(MONITORED, False), (OTHER, True)]:
        objects = render(values)
        assert ("runbook_url" in json.dumps(of_kind(objects, "PrometheusRule"))) == is_published
        boards = [json.loads(text) for each in of_kind(objects, "ConfigMap") for name, text in each["data"].items() if name.endswith(".json")]
        places = [place for board in boards for panel in board["panels"] for place in (panel, panel.get("fieldConfig", {}).get("defaults", {}))]
        urls = [link["url"] for place in places for link in place.get("links") or []]
        assert any("${docs}" in url for url in urls) == is_published
        # The page of a node listens on loopback, which Grafana's users cannot reach.
        assert urls and not any("page_port" in url for url in urls)


def prometheus_loads_the_rules() -> None:
    for values in [MONITORED, OTHER]:
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for each in of_kind(render(values), "PrometheusRule"):
                files.append(Path(folder) / f"{each['metadata']['name']}.yaml")
                files[-1].write_text(yaml.safe_dump(each["spec"]))
            result = subprocess.run([shutil.which("promtool"), "check", "rules", *map(str, files)], capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stdout + result.stderr


def a_wrong_value_is_refused_by_name() -> None:
    for values, named in [
        ({"mod": "observe"}, "mod"),
        ({"mode": "acting"}, "mode"),
        ({"monitoring": {"thresholds": {"faultLatenzy": 1}}}, "faultLatenzy"),
        ({"monitoring": {"enabled": True, "alerts": {"UvmOwnerTrashing": {"enabled": False}}}}, "UvmOwnerTrashing"),
        ({"config": {"10-kubernetes.toml": ""}}, "10-kubernetes.toml"),
    ]:
        try:
            render(values)
        except helm_python.HelmError as error:
            assert named in str(error), error
        else:
            raise AssertionError(f"{values} is accepted")


def main() -> None:
    tests = [each for name, each in globals().items() if callable(each) and name.islower() and each.__module__ == "__main__" and "_" in name and not each.__code__.co_argcount]
    failed = 0
    for test in tests:
        try:
            test()
            print(f"ok: {test.__name__.replace('_', ' ')}")
        except Exception as error:  # noqa: BLE001
            failed += 1
            print(f"FAILED: {test.__name__.replace('_', ' ')}: {type(error).__name__}: {str(error)[:2000]}")
    sys.exit(f"{failed} of {len(tests)} failed" if failed else 0)


if __name__ == "__main__":
    main()

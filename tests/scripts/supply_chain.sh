#!/usr/bin/env bash
# Licences, sources and versions of all crates keep the rules of deny.toml; the bill of materials names every crate, and is reproducible.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

if [ ! -x "$UVMD_CARGO_DENY/bin/cargo-deny" ] || [ ! -d "$UVMD_CYCLONEDX" ]; then scripts/setup --supply-chain; fi
deny() { "$UVMD_CARGO_DENY/bin/cargo-deny" --locked --config deny.toml "$@" licenses bans sources; }
# A rule that nothing needs any more is a mistake for the workspace; the probes need few of them.
deny --manifest-path Cargo.toml check -D unmatched-skip -D license-not-encountered
deny --manifest-path ebpf/Cargo.toml check -A unmatched-skip -A license-not-encountered

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
packaging/sbom >"$work/first.json"
packaging/sbom >"$work/second.json"
cmp "$work/first.json" "$work/second.json" || die "the bill of materials is not reproducible"
! grep -F -e "$UVMD_ROOT" -e "${CARGO_HOME:-$HOME/.cargo}" "$work/first.json" || die "the bill of materials has paths of this machine"
cargo tree --locked -p uvmd -p uvmctl -e normal --prefix none >"$work/tree"
cargo tree --locked --manifest-path ebpf/Cargo.toml -e normal --prefix none >>"$work/tree"
python3 - "$work/first.json" "$work/tree" <<'PYTHON'
import json, re, sys

bom = json.load(open(sys.argv[1]))
components = bom["components"]
by_name = {(each["name"], each["version"]): each for each in components}
crates = {tuple(match) for match in re.findall(r"^(\S+) v(\S+)", open(sys.argv[2]).read(), re.MULTILINE)}
wrong = [f"{crate}: not named" for crate in crates - by_name.keys()]
wrong += [f"{crate}: named, and not in the tree" for crate in by_name.keys() - crates if crate[0] != "rust-std"]
for crate in crates & by_name.keys():
    each = by_name[crate]
    if not any(licence.get("expression") or licence["license"].get("name") for licence in each["licenses"]):
        wrong.append(f"{crate}: no licence")
    if each["purl"].startswith("pkg:cargo/") and not re.fullmatch("[0-9a-f]{64}", each["hashes"][0]["content"]):
        wrong.append(f"{crate}: no checksum")
references = [each["bom-ref"] for each in [bom["metadata"]["component"], *components]]
if len(references) != len(set(references)):
    wrong.append("two components with one reference")
named = {name for each in bom["dependencies"] for name in [each["ref"], *each.get("dependsOn", [])]}
wrong += [f"{name}: a dependency, and no component" for name in named - set(references)]
if (bom["bomFormat"], bom["specVersion"]) != ("CycloneDX", "1.5") or "serialNumber" not in bom or "timestamp" not in bom["metadata"]:
    wrong.append("not a reproducible CycloneDX 1.5")
if len(crates) < 100:
    wrong.append(f"cargo tree names {len(crates)} crates only")
print(f"bill of materials: {len(components)} components, {sum(each['scope'] == 'required' for each in components)} of them linked")
sys.exit("\n".join(wrong) or None)
PYTHON

"$UVMD_SCHEMATHESIS/bin/python" - "$work/first.json" "$UVMD_CYCLONEDX" <<'PYTHON'
import json, pathlib, sys
import jsonschema_rs

def schema(name):
    return json.loads((pathlib.Path(sys.argv[2]) / f"{name}.SNAPSHOT.schema.json").read_text())

# By the references to them. Nothing is fetched.
others = [(f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", schema(name)) for name in ("spdx", "jsf-0.82")]
validator = jsonschema_rs.Draft7Validator(schema("bom-1.5"), registry=jsonschema_rs.Registry(others), validate_formats=True)
wrong = [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in validator.iter_errors(json.load(open(sys.argv[1])))]
sys.exit("\n".join(wrong) or None)
PYTHON
echo "bill of materials: valid by the schema of CycloneDX 1.5"

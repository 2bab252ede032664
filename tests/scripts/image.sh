#!/usr/bin/env bash
# The container image: the same each time, with its labels, and its programs run in its root. Options are those of scripts/image.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

if [ "$(id -u)" != 0 ]; then
  [ -z "${UVMD_TEST_REQUIRE_ROOT:-}" ] || die "this needs root"
  note "skipped: scripts/image runs as root"
  exit 0
fi
for tool in skopeo umoci; do command -v "$tool" >/dev/null || { scripts/setup --image && break; }; done
work=$(mktemp -d)
service=''
trap '[ -z "$service" ] || kill "$service" 2>/dev/null || true; rm -rf "$work"' EXIT

scripts/image "$@"
version=$(target/release/uvmd --version | awk '{ print $2 }')
image=(target/package/uvmd-"$version".oci.tar)
mkdir "$work/first"
cp target/package/*.oci.tar "$work/first"
scripts/image --no-build
# A package that the mirror got in between makes another one.
for file in "$work"/first/*; do
  cmp "$file" "target/package/${file##*/}" || die "two images of the same programs differ: ${file##*/}"
done

# The bill of materials is that in the image, and refers to it.
digest() { skopeo inspect --raw "oci-archive:target/package/$1.oci.tar" | sha256sum | cut -d ' ' -f 1; }
for variant in "uvmd-$version" "uvmd-$version-act"; do
  subject=$(skopeo inspect --raw "oci-archive:target/package/$variant.sbom.oci.tar" | python3 -c 'import json, sys; print(json.load(sys.stdin)["subject"]["digest"])')
  [ "$subject" = "sha256:$(digest "$variant")" ] || die "the bill of materials of $variant refers to $subject"
  # As a registry gets it.
  skopeo copy --preserve-digests "oci-archive:target/package/$variant.sbom.oci.tar" "oci:$work/copied:$variant"
done

skopeo inspect --config "oci-archive:${image[0]}" >"$work/config.json"
python3 - "$work/config.json" "$version" "$(git log -1 --format=%ct)" "$(git rev-parse HEAD)" <<'PYTHON'
import datetime, json, sys

image = json.load(open(sys.argv[1]))
version, time, revision = sys.argv[2:]
config = image["config"]
got = {
    "entry point": config["Entrypoint"],
    "command": config.get("Cmd"),
    "ports": sorted(config["ExposedPorts"]),
    "user": config["User"],
    "version": config["Labels"]["org.opencontainers.image.version"],
    "revision": config["Labels"]["org.opencontainers.image.revision"],
    "licences": config["Labels"]["org.opencontainers.image.licenses"],
    "created": datetime.datetime.fromisoformat(image["created"]).timestamp(),
    "layers": len(image["rootfs"]["diff_ids"]),
}
want = {
    "entry point": ["/usr/bin/uvmd"], "command": None, "ports": ["9477/tcp", "9478/tcp"], "user": "0:0", "version": version, "revision": revision,
    "licences": "MIT OR Apache-2.0", "created": float(time), "layers": 1,
}
sys.exit(0 if got == want else f"the image has {got}, not {want}")
PYTHON

mkdir "$work/oci"
tar -x -C "$work/oci" -f "${image[0]}"
name=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"])' <"$work/oci/index.json")
[ "$name" = "localhost/uvmd:$version" ] || die "the image's name is $name"
# umoci takes no name with a colon.
sed -i "s#$name#test#" "$work/oci/index.json"
umoci unpack --image "$work/oci:test" "$work/bundle"
root=$work/bundle/rootfs
[ -z "$(find "$root" -name '*sh' -type f -perm /111)" ] || die "the image has a shell"
[ ! -e "$root/usr/lib/uvmd" ] || die "the image that observes has the helper"
mkdir "$work/act"
tar -x -C "$work/act" -f "target/package/uvmd-$version-act.oci.tar"
sed -i "s#localhost/uvmd:$version-act#test#" "$work/act/index.json"
umoci unpack --image "$work/act:test" "$work/act-bundle"
for file in lib/uvmd/libuvmd_helper.so lib/uvmd/libuvmd_helper_cuda.so share/uvmd/helper/cdi.json bin/uvmd; do
  [ -s "$work/act-bundle/rootfs/usr/$file" ] || die "the image that acts has no /usr/$file"
done
for file in etc/ssl/certs/ca-certificates.crt etc/uvmd/uvmd.toml usr/share/doc/uvmd/{third-party-licences,uvmd.cdx.json,LICENSE-APACHE,LICENSE-MIT} \
  usr/share/doc/{libc6,libgcc-s1}/copyright var/lib/dpkg/status.d/libc6; do
  [ -s "$root/$file" ] || die "the image has no $file"
done
for program in uvmd uvmctl; do
  said=$(chroot "$root" "/usr/bin/$program" --version)
  [ "$said" = "$(target/release/$program --version)" ] || die "$program of the image says: $said"
  echo "$said"
done

# Not the versions alone: uvmd serves, with /proc and /sys of the host as in a container.
# shellcheck disable=SC2016 # the inner shell's
unshare --mount sh -ec 'for folder in proc sys; do mount --rbind "/$folder" "$0/$folder"; done; exec chroot "$0" /usr/bin/uvmd --listen none' "$root" \
  >"$work/log" 2>&1 &
service=$!
for _ in $(seq 100); do
  [ ! -S "$root/run/uvmd/uvmd.sock" ] || break
  kill -0 "$service" 2>/dev/null || break
  sleep 0.1
done
chroot "$root" /usr/bin/uvmctl status >"$work/status" 2>&1 || { cat "$work/log" "$work/status" >&2 && die "uvmctl of the image gets no answer"; }
cat "$work/status"
kill "$service"
wait "$service" || die "uvmd of the image ended with $?"
service=''

#!/usr/bin/env bash
# Makes the Debian package of a built Tessera: tools/make_deb.sh BUILD_FOLDER FOLDER
# Writes tessera_VERSION_amd64.deb for Debian 12 to FOLDER. DEBFULLNAME and DEBEMAIL name the maintainer.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -ne 2 ]]; then
  sed -n '2,3s/^# //p' "$0" >&2
  exit 2
fi
build=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
files=deploy/debian
version=$(sed -n 's/^project(tessera VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root="$scratch/root"
doc="$root/usr/share/doc/tessera"

# The package has only the program and its data. Libraries and headers, for programs that embed the engine, would belong
# in another package.
cmake --install "$build" --prefix "$scratch/all" --strip >/dev/null
install -D "$scratch/all/bin/tessera" "$root/usr/bin/tessera"
chrpath --delete "$root/usr/bin/tessera" >/dev/null # the loader finds Debian's libraries by itself
install -D -m 644 "$scratch/all/share/man/man1/tessera.1" "$root/usr/share/man/man1/tessera.1"
gzip -9n "$root/usr/share/man/man1/tessera.1"
for shell in bash-completion/completions zsh/vendor-completions fish/vendor_completions.d; do
  mkdir -p "$root/usr/share/$shell"
done
install -m 644 "$scratch/all/share/bash-completion/completions/tessera" "$root/usr/share/bash-completion/completions/tessera"
install -m 644 "$scratch/all/share/zsh/site-functions/_tessera" "$root/usr/share/zsh/vendor-completions/_tessera"
install -m 644 "$scratch/all/share/fish/vendor_completions.d/tessera.fish" "$root/usr/share/fish/vendor_completions.d/tessera.fish"
mkdir -p "$root/usr/share/tessera/models/demo"
install -m 644 models/demo/* "$root/usr/share/tessera/models/demo"

install -D -m 644 "$files/tessera.service" "$root/lib/systemd/system/tessera.service"
install -D -m 644 "$files/tessera.sysusers" "$root/usr/lib/sysusers.d/tessera.conf"
install -D -m 640 "$files/serve.yaml" "$root/etc/tessera/serve.yaml" # it may hold a key
install -D -m 644 "$files/copyright" "$doc/copyright"
install -D -m 644 "$files/lintian-overrides" "$root/usr/share/lintian/overrides/tessera"
maintainer="${DEBFULLNAME:-Tessera maintainers} <${DEBEMAIL:-tessera@example.org}>"
printf 'tessera (%s) bookworm; urgency=medium\n\n  * This version; NEWS of its parts: CHANGELOG.md.gz.\n\n -- %s  %s\n' \
  "$version" "$maintainer" "$(date -R -u -d "@$(git log -1 --format=%ct 2>/dev/null || date +%s)")" | gzip -9n >"$doc/changelog.gz"
chmod 644 "$doc/changelog.gz"
gzip -9nc CHANGELOG.md >"$doc/CHANGELOG.md.gz"
python3 - "$build" "$doc/licenses" <<'PY'
import pathlib, sys
sys.path.insert(0, "tools")
import licenses
licenses.collect(pathlib.Path(sys.argv[1]), [], pathlib.Path(sys.argv[2]), with_tests=False)
PY

mkdir -p "$root/DEBIAN" "$scratch/debian"
printf 'Source: tessera\n\nPackage: tessera\nArchitecture: amd64\n' >"$scratch/debian/control"
depends=$(cd "$scratch" && dpkg-shlibdeps -O root/usr/bin/tessera 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
sed -e "s|@VERSION@|$version|; s|@MAINTAINER@|$maintainer|; s|@DEPENDS@|$depends|" \
  -e "s|@SIZE@|$(du -sk --apparent-size "$root" | cut -f1)|" "$files/control.in" >"$root/DEBIAN/control"
install -m 755 "$files/postinst" "$files/prerm" "$files/postrm" "$root/DEBIAN"
echo /etc/tessera/serve.yaml >"$root/DEBIAN/conffiles"
find "$root" -type d -exec chmod 755 {} +
(cd "$root" && find . -path ./DEBIAN -prune -o -path ./etc -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/tessera_${version}_amd64.deb" >/dev/null
echo "$out/tessera_${version}_amd64.deb: $(du -k "$out/tessera_${version}_amd64.deb" | cut -f1) KiB"

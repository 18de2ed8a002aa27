#!/usr/bin/env bash
# Makes the Debian package of a build, checks it with lintian, and installs, upgrades, removes and purges it:
#   tests/debian/deb_test.sh BUILD_FOLDER [CHROOT]
# CHROOT is a Debian 12 (debootstrap --variant=minbase bookworm CHROOT). There apt-get installs the package with its
# dependencies, and the program writes a text. Without CHROOT, dpkg installs the package into a root folder with a few
# files. Catches: lintian's findings, a library that no dependency provides, a conffile that an upgrade overwrites,
# files that stay after a purge, and a service that systemd cannot read or that has a wrong command line.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
for tool in lintian chrpath dpkg-shlibdeps systemd-analyze systemd-sysusers; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $tool is missing"
    exit 77
  fi
done
if ((EUID != 0)); then
  echo "skipped: installing into another root needs root"
  exit 77
fi
. tests/checks.sh "$1"
chroot=${2:-}
root="$work/root"

# Copies the programs that the maintainer scripts run, together with their libraries.
make_small_root() {
  local program
  mkdir -p "$root"/{bin,etc,tmp,var/lib/dpkg/{info,updates},var/log}
  touch "$root/var/lib/dpkg/status"
  for program in sh rm chgrp chmod dpkg-statoverride systemd-sysusers; do
    program=$(command -v "$program")
    install -D "$program" "$root/bin/${program##*/}"
    ldd "$program" | grep -oE '/[^ ]+' | while read -r library; do
      [[ -e "$root$library" ]] || install -D "$library" "$root$library"
    done
  done
}

dpkg_there() { DEBIAN_FRONTEND=noninteractive dpkg --root="$root" --force-depends --force-not-root --force-confold "$@"; }

has_user() { grep -E '^tessera:.*:/var/lib/tessera:/usr/sbin/nologin$' "$root/etc/passwd"; }

# The configuration may have a key, which only root and the service may read.
hides_its_configuration() {
  local group
  group=$(sed -n 's/^tessera:[^:]*:\([0-9]*\):.*/\1/p' "$root/etc/group")
  [[ -n "$group" && "$(stat -c '%a %u %g' "$root/etc/tessera/serve.yaml")" == "640 0 $group" ]]
}

# Checks an upgrade from a version that left the file readable by all.
hides_an_open_configuration() {
  chmod 644 "$root/etc/tessera/serve.yaml"
  dpkg_there --install "$work"/*.deb && hides_its_configuration
}

keeps_a_changed_conffile() {
  sed -i 's/^port: .*/port: 31000/' "$root/etc/tessera/serve.yaml"
  dpkg_there --install "$work"/*.deb && grep '^port: 31000$' "$root/etc/tessera/serve.yaml"
}

removes() {
  mkdir -p "$root/var/cache/tessera"
  dpkg_there --remove tessera && [[ ! -e "$root/usr/bin/tessera" && -e "$root/etc/tessera/serve.yaml" ]]
}

# Makes the link that `systemctl enable` makes, and checks that a purge removes it too.
purges() {
  local wants="$root/etc/systemd/system/multi-user.target.wants"
  mkdir -p "$wants" && ln -s /lib/systemd/system/tessera.service "$wants/tessera.service" || return 1
  dpkg_there --purge tessera && ! find "$root" -path "$root/var/lib/dpkg" -prune -o -name '*tessera*' -print | grep .
}

# Prints systemd's findings about a unit and ignores its exit status, since unknown settings are only warnings.
verify() { systemd-analyze verify --man=no "$1" 2>&1 || true; }

# Makes units/ with the service for the build's program, and wrong/ with a copy that has a setting unknown to systemd.
make_units() {
  mkdir -p "$work/units" "$work/wrong"
  sed "s|/usr/bin/tessera|$build/tessera|" deploy/debian/tessera.service >"$work/units/tessera.service"
  sed 's/^\[Service\]$/&\nNoSuchSetting=1/' "$work/units/tessera.service" >"$work/wrong/tessera.service"
}

service_is_read() {
  local said
  said=$(verify "$work/units/tessera.service")
  echo "$said"
  [[ "$said" != *tessera.service* ]]
}

service_may_ask_for_interfaces() { grep -E '^RestrictAddressFamilies=.*\bAF_NETLINK\b' deploy/debian/tessera.service; }

configuration_is_read() {
  sed "s|/usr/share/tessera|$PWD|" deploy/debian/serve.yaml >"$work/serve.yaml"
  "$build/tessera" serve --config "$work/serve.yaml" --print-config | grep '"port": 30000'
}

inside() { chroot "$chroot" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }

installs_by_apt() {
  cp "$work"/*.deb "$chroot/tmp/tessera.deb" && inside apt-get update -q &&
    inside apt-get install -q -y --no-install-recommends /tmp/tessera.deb
}

answers_there() {
  local text
  text=$(inside tessera generate --model-path /usr/share/tessera/models/demo --prompt "Once upon a time" --max-new-tokens 20) ||
    return 1
  is_text "$text"
}

check "package" tools/make_deb.sh "$build" "$work"
check "lintian" lintian --fail-on error,warning "$work"/*.deb
make_units
if [[ "$(verify "$work/wrong/tessera.service")" == *NoSuchSetting* ]]; then
  check "service is read by systemd" service_is_read
else
  echo "skipped: systemd-analyze does not work here"
fi
check "service may ask for interfaces" service_may_ask_for_interfaces
check "configuration is read" configuration_is_read
make_small_root
check "install" dpkg_there --install "$work"/*.deb
check "its user" has_user
check "its configuration is read by the service alone" hides_its_configuration
check "upgrade hides a configuration that all could read" hides_an_open_configuration
check "upgrade keeps a changed conffile" keeps_a_changed_conffile
check "remove keeps the configuration" removes
check "purge leaves nothing" purges
if [[ -n "$chroot" ]]; then
  mount -t proc proc "$chroot/proc" && trap 'umount "$chroot/proc"; rm -rf "$work"' EXIT
  check "apt-get installs it with its dependencies" installs_by_apt
  check "program writes" answers_there
  check "apt-get purges it" inside apt-get purge -q -y tessera
fi

report

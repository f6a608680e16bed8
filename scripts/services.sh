#!/usr/bin/env bash
# Installs or fetches the real services that the tests can use: Redis, PostgreSQL and MariaDB from Debian's packages, Kafka
# and RocketMQ from their Maven artifacts. Names given as arguments are packages wanted besides. What cannot be had is said in one line
# each, and is not an error: the tests skip what is missing, and IDEMQ_TEST_REQUIRE turns such a skip into a failure.
set -euo pipefail

policy=/usr/sbin/policy-rc.d

missing_packages() {
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || echo postgresql
  command -v redis-server >/dev/null || echo redis-server
  command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || echo mariadb-server
  command -v java >/dev/null || echo default-jre-headless
  command -v mvn >/dev/null || echo maven
  local name
  for name in "$@"; do
    dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q '^install ok installed$' || echo "$name"
  done
}

# Debian starts a daemon as soon as its package is unpacked. policy-rc.d forbids that while we install, and is put back.
install_packages() {
  if [ -e "$policy" ]; then mv "$policy" "$policy.kept"; fi
  trap restore_policy EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" </dev/null >/dev/null
  restore_policy
  trap - EXIT
}

restore_policy() {
  rm -f "$policy"
  if [ -e "$policy.kept" ]; then mv "$policy.kept" "$policy"; fi
}

packages=()
if command -v dpkg-query >/dev/null; then
  mapfile -t packages < <(missing_packages "$@")
fi
if [ "${#packages[@]}" -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "services: installing ${packages[*]}"
    install_packages "${packages[@]}"
  else
    echo "services: missing ${packages[*]}; as root: apt-get install --no-install-recommends ${packages[*]}"
  fi
elif ! command -v dpkg-query >/dev/null; then
  echo "services: not a Debian-like system; put redis-server, postgres, mariadbd, java (17 or newer) and mvn on the PATH"
fi

cd "$(dirname "$0")/.."
go run ./internal/testenv/cmd/services check

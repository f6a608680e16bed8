#!/usr/bin/env bash
# Runs a command with a Docker daemon and images of our own: scripts/with-docker.sh COMMAND...
# It is for machines that have dockerd but neither a running daemon nor a registry to pull from. The daemon keeps everything in a
# temporary directory, publishes ports on loopback only, and is gone at the end. The images hold the installed redis-server and
# PostgreSQL with the shared libraries that they need, and are used like the official ones.
set -euo pipefail

work=$(mktemp -d /tmp/idemq-docker-XXXXXX)
export DOCKER_HOST=unix://$work/docker.sock
daemon=
had_bridge=false
if [ -d /sys/class/net/docker0 ]; then had_bridge=true; fi

finish() {
  if [ -n "$daemon" ]; then
    docker ps -aq 2>/dev/null | xargs -r docker rm -f >/dev/null 2>&1 || true # testenv's reaper may be removing it, too
    kill "$daemon" 2>/dev/null || true                       # or be gone
    wait "$daemon" || true
  fi
  if ! $had_bridge && [ -d /sys/class/net/docker0 ]; then ip link delete docker0; fi
  rm -rf "$work"
}
trap finish EXIT

# start DRIVER starts the daemon, and fails if it does not come up.
start() {
  dockerd --host "$DOCKER_HOST" --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/pid" --storage-driver "$1" \
    --ip 127.0.0.1 --iptables=false --ip-forward=false --ip-masq=false >"$work/log-$1" 2>&1 &
  daemon=$!
  for _ in $(seq 300); do
    if docker version >/dev/null 2>&1; then return 0; fi
    if ! kill -0 "$daemon" 2>/dev/null; then break; fi
    sleep 0.1
  done
  kill "$daemon" 2>/dev/null || true # it may be gone already
  wait "$daemon" || true
  daemon=
  return 1
}

# add ROOT FILE... copies files and directories into ROOT, and the shared libraries that the files need.
add() {
  local root=$1 libs
  shift
  libs=$(ldd "$@" 2>/dev/null | grep -oE '/[^ :]+ \(' | tr -d ' (' | sort -u) || true # of text files ldd says nothing
  printf '%s\n' "$@" $libs | sed 's,^/,,' | tar -C / -ch -T - | tar -C "$root" -x
}

build_redis() {
  local root=$work/redis
  mkdir -p "$root/tmp"
  add "$root" "$(command -v redis-server)"
  tar -C "$root" -c . | docker import \
    -c 'ENV PATH=/usr/local/bin:/usr/bin' -c 'CMD ["redis-server"]' - idemq-test/redis:local >/dev/null
}

build_postgres() {
  local root=$work/postgres lib share
  lib=$(dirname "$(dirname "$(find /usr/lib/postgresql -name initdb | sort -V | tail -1)")")
  share=/usr/share/postgresql/$(basename "$lib")
  mkdir -p "$root/tmp" "$root/etc" "$root/data"
  add "$root" "$lib/bin/initdb" "$lib/bin/postgres" "$lib"/lib/{plpgsql,dict_snowball}.so "$share" /usr/share/zoneinfo/UTC /bin/sh
  echo 'postgres:x:70:70::/data:/bin/sh' >"$root/etc/passwd"
  cat >"$root/entrypoint" <<'END'
set -e
printf '%s\n' "$POSTGRES_PASSWORD" >/data/password
initdb -D /data/pg -U "$POSTGRES_USER" --pwfile /data/password -A scram-sha-256 --no-locale -E UTF8 --no-sync >/dev/null
echo 'host all all all scram-sha-256' >>/data/pg/pg_hba.conf
shift
exec postgres -D /data/pg -c listen_addresses='*' -c unix_socket_directories= "$@"
END
  chown -R 70:70 "$root/data"
  tar -C "$root" -c . | docker import \
    -c "ENV PATH=$lib/bin:/bin" -c 'USER 70:70' -c 'ENTRYPOINT ["/bin/sh", "/entrypoint"]' -c 'CMD ["postgres"]' - \
    idemq-test/postgres:local >/dev/null
}

if ! start overlay2 && ! start vfs; then
  echo "with-docker: dockerd does not come up on this machine: $(tail -n 1 "$work/log-vfs")" >&2
  exit 1
fi
build_redis
build_postgres

export IDEMQ_IMAGE_REDIS=idemq-test/redis:local IDEMQ_IMAGE_POSTGRES=idemq-test/postgres:local
# Where the machine itself looks like a container, testcontainers would look for the ports on the bridge's gateway. Its own
# clean-up container cannot be pulled, and testenv cleans up.
export TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1 TESTCONTAINERS_RYUK_DISABLED=true
"$@"

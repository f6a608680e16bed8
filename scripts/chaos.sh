#!/usr/bin/env bash
# The inventory on real services while consumers are killed with SIGKILL every two seconds and Redis is flushed, killed and brought back.
# Ends with `check`, once for each database and mode; fails where an order was lost, or applied twice against the mode's promise.
#
#   make local-up && make chaos
#   ORDERS=5000 SECONDS_OF_KILLS=20 DATABASES=postgres MODES=transactional scripts/chaos.sh
set -euo pipefail
cd "$(dirname "$0")/.."

ORDERS=${ORDERS:-20000}
KILL_SECONDS=${SECONDS_OF_KILLS:-60}
DATABASES=${DATABASES:-postgres mysql}
MODES=${MODES:-transactional logged}
CONSUMERS=3
CONCURRENCY=16 # messages in work in a consumer, by the default policy: so many effects a kill may repeat in logged mode

[ -f .local/env ] || { echo 'chaos: no .local/env; run `make local-up` first' >&2; exit 2; }
# shellcheck disable=SC1091
. .local/env
work=$(mktemp -d)
go build -o "$work/inventory" ./examples/inventory
go build -o "$work/services" ./internal/testenv/cmd/services
pids=()

consume() { # NUMBER: start consumer NUMBER
  "$work/inventory" consume --session 1s --lease 3s >>"$work/consume-$1.log" 2>&1 &
  pids[$1]=$!
}

stop_all() { # SIGNAL
  local p
  for p in "${pids[@]}"; do kill "-$1" "$p" 2>/dev/null || true; done
  for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
  pids=()
}

finish() {
  local status=$?
  stop_all KILL
  "$work/services" start redis >/dev/null 2>&1 || true
  if [ $status -ne 0 ]; then echo "chaos: failed; logs are in $work" >&2; else rm -rf "$work"; fi
}
trap finish EXIT

redis_does() { # what happens to Redis in second $1 of the kills
  case $1 in
    10 | 30) redis-cli -u "$INVENTORY_REDIS" flushall >/dev/null && echo "  ${1}s Redis flushed" ;;
    20 | 44) "$work/services" kill redis && echo "  ${1}s Redis killed" ;;
    26 | 50) "$work/services" start redis && echo "  ${1}s Redis back, and empty" ;;
  esac
}

round() { # DATABASE MODE
  export INVENTORY_MODE=$2 INVENTORY_TOPIC="chaos-$1-$2" INVENTORY_GROUP="chaos-$1-$2"
  case $1 in
    postgres) export INVENTORY_DB=$INVENTORY_DB_POSTGRES ;;
    mysql) export INVENTORY_DB=$INVENTORY_DB_MYSQL ;;
    *) echo "chaos: database $1: want postgres or mysql" >&2; exit 2 ;;
  esac
  echo "== $2 on $1: $ORDERS orders, 30 % sent twice"
  "$work/inventory" reset
  "$work/inventory" produce --orders "$ORDERS" --duplicates 0.3 --rate $((ORDERS * 13 / 10 / KILL_SECONDS)) &
  local producer=$! second kills=0 i
  for ((i = 0; i < CONSUMERS; i++)); do consume "$i"; done
  for ((second = 2; second <= KILL_SECONDS; second += 2)); do
    sleep 2
    i=$((kills++ % CONSUMERS))
    kill -KILL "${pids[$i]}" 2>/dev/null || true
    wait "${pids[$i]}" 2>/dev/null || true
    consume "$i"
    redis_does "$second"
  done
  wait "$producer"
  echo "  $kills kills; waiting for the rest"
  local status=0
  "$work/inventory" check --wait 180s --json >"$work/check.json" || status=$?
  cat "$work/check.json"
  stop_all TERM
  local twice
  twice=$(grep -o '"twice": *[0-9]*' "$work/check.json" | grep -o '[0-9]*$')
  if [ "$twice" -gt $((kills * CONCURRENCY)) ]; then
    echo "chaos: $twice orders applied twice by $kills kills: more than were in work" >&2
    status=1
  fi
  return $status
}

INVENTORY_DB_POSTGRES=$INVENTORY_DB
failed=0
for db in $DATABASES; do
  for mode in $MODES; do round "$db" "$mode" || failed=1; done
done
exit $failed

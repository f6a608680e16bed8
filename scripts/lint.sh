#!/usr/bin/env bash
# go vet and staticcheck in every module of the repository, and gofumpt on every Go file. Fails on any finding.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
tool() { go tool -modfile="$root/internal/tools/go.mod" "$@"; }

for mod in . bench; do
  [ -f "$mod/go.mod" ] || continue
  (
    cd "$mod"
    go vet ./...
    tool staticcheck ./...
  )
done

unformatted=$(tool gofumpt -l .)
if [ -n "$unformatted" ]; then
  echo "lint: not formatted (go tool -modfile=internal/tools/go.mod gofumpt -w .):"
  echo "$unformatted"
  exit 1
fi

#!/usr/bin/env bash
# Runs every fuzz test of the module for the time given, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."

grep -rlE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' . | while read -r file; do
  package=./$(dirname "$file")
  grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -d' ' -f2 | while read -r name; do
    go test -run='^$' -fuzz="^$name\$" -fuzztime="$1" "$package" </dev/null
  done
done

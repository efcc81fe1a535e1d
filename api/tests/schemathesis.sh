#!/usr/bin/env bash
# Checks a running service against its OpenAPI document with schemathesis: requests that the document
# allows, and others. Takes over a minute.
#
# api/tests/schemathesis.sh [PROGRAM]   the program is target/debug/ellect unless it is named
set -euo pipefail
cd "$(dirname "$0")/../.."

program=${1:-${CARGO_TARGET_DIR:-target}/debug/ellect}
work=$(mktemp -d)
server=
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

python3 -m venv "$work/python"
"$work/python/bin/pip" install --quiet 'schemathesis==4.32.5'

"$program" serve --listen 127.0.0.1:0 --data "$work/data" --max-nonzeros 100000 2>"$work/log" &
server=$!
for _ in $(seq 100); do
    grep -q 'http://' "$work/log" && break
    sleep 0.1
done
address=$(grep -o 'http://[0-9.:]*' "$work/log" | head -1)

# Random bytes are no matrix, and random names no device, so requests that follow the document may be
# refused. Measuring is left out: it is tested elsewhere, and would take the whole time.
cd "$work"
"$work/python/bin/st" run "$address/openapi.json" --max-examples 15 --max-time 40 --seed 1 \
    --generation-deterministic --request-timeout 30 --exclude-checks positive_data_acceptance \
    --exclude-path /tune --phases examples,coverage,fuzzing --suppress-health-check all

# The service lives and has met no fault of its own.
curl --silent --fail "$address/healthz"
if grep ERROR "$work/log"; then
    exit 1
fi

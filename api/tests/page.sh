#!/usr/bin/env bash
# Checks the page of a running service in Chromium: its flows, keyboard, labels and contrast, on wide
# and narrow screens, light and dark. Takes about a minute after installing.
#
# api/tests/page.sh [PROGRAM]   the program is target/debug/ellect unless it is named
# SCREENSHOTS=DIR keeps pictures of all views.
set -euo pipefail
cd "$(dirname "$0")/../.."

program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/ellect}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/python"
"$work/python/bin/pip" install --quiet --disable-pip-version-check \
    'playwright==1.65.2' 'axe-playwright-python==0.1.8' 'pytest>=9,<10'

# A Chromium of the system, else that of Debian, else Playwright's own.
installed() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
chromium=$(installed || true)
if [ -z "$chromium" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq \
        --no-install-recommends chromium; } >"$work/apt" 2>&1 || cat "$work/apt" >&2
    chromium=$(installed || true)
fi
[ -n "$chromium" ] || "$work/python/bin/playwright" install chromium-headless-shell

export PROGRAM=$program CHROMIUM=$chromium
"$work/python/bin/python" -m pytest -q -p no:cacheprovider api/tests/page

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

# A Chromium of the system, else Playwright's own, else that of Debian.
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$chromium" ] && ! "$work/python/bin/playwright" install chromium-headless-shell; then
    apt-get install --yes --quiet --no-install-recommends chromium
    chromium=$(command -v chromium)
fi

export PROGRAM=$program CHROMIUM=$chromium
"$work/python/bin/python" -m pytest -q -p no:cacheprovider api/tests/page

#!/usr/bin/env bash
# Tests of shared wisdom against PostgreSQL, which is installed if it is missing (as root, with apt-get).
# Each test makes a cluster of its own on a socket in a temporary folder, as an unprivileged user.
#
# api/tests/postgres.sh [ARGUMENTS]   the arguments are those of `cargo test`, for other tests
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null; then
    # The package would otherwise make and start a cluster.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql openssl
fi

export REQUIRE_POSTGRES=1
if [ $# -eq 0 ]; then
    set -- -p ellect-api --features postgres --lib --test postgres
fi
cargo test "$@"

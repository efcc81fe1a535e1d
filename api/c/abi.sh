#!/usr/bin/env bash
# Prints the binary interface of an installed library: constants, functions, layouts of structures, and
# exported symbols. abi.txt holds what released programs rely on. A line of it that changes or
# disappears breaks them and needs a new major version; new lines are appended to it, and structures
# that begin with their size may grow.
#
# usage: api/c/abi.sh PREFIX
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2; }
prefix=$1 here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
header=$prefix/include/ellect.h

echo "# constants"
sed -nE 's/^#define (ELLECT_[A-Z0-9_]+) (-?[0-9]+)$/\1 = \2/p' "$header"
echo "# functions"
${CC:-cc} -E -P "$header" | tr '\n' ' ' | tr -s ' ' | sed 's/;/;\n/g' |
    grep -oE '(ellect_status|void|const char \*) ?ellect_[a-z_0-9]+\(.*\)' | LC_ALL=C sort
echo "# structures"
awk '/^typedef struct [a-z_]+ \{/ { type = $3; print "STRUCT(" type ");" }
     /^}/ { type = "" }
     type != "" && /;$/ && !/^ *\/\// {
         gsub(/[;*]/, ""); print "FIELD(" type ", " $NF ");"
     }' "$header" >"$work/structures.h"
${CC:-cc} -std=c99 -I"$work" -I"$prefix/include" "$here/tests/abi.c" -o "$work/abi"
"$work/abi"
echo "# symbols"
nm -D --defined-only "$prefix/lib/libellect.so" | awk '{ print $3 }' | LC_ALL=C sort

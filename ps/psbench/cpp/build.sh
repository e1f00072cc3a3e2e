#!/bin/sh
# Builds the programs that `monolith bench table` measures beside the table: build.sh FOLDER. It needs g++; abseil and libcuckoo
# are left out where Debian's packages libabsl-dev and libcuckoo-dev are not installed.
set -u
src=$(dirname "$0")/table.cc
flags="-O3 -march=native -std=c++17 -pthread"
g++ $flags -DTWIN_ARRAY "$src" -o "$1/array" || exit 1
g++ $flags -DTWIN_ABSEIL "$src" -o "$1/abseil" $(pkg-config --libs absl_flat_hash_map 2>/dev/null) 2>/dev/null || rm -f "$1/abseil"
g++ $flags -DTWIN_LIBCUCKOO "$src" -o "$1/libcuckoo" 2>/dev/null || rm -f "$1/libcuckoo"

#!/usr/bin/env bash
set -e
flags=(+S 2:2 +sbwt very_long +swt very_low)
[ -n "$PERF" ] && flags+=(+P 1048576)
taskset -c 0,1 erl "${flags[@]}" -noshell -pa ebin -s bench

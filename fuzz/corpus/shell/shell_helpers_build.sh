#!/bin/bash
# Builds the library; no VM of it stays.
set -eu
command -v erl >/dev/null || { echo "erl is missing: apt-get install erlang" >&2; exit 1; }
release=$(erl -noshell +sbwt off -eval 'io:put_chars(erlang:system_info(otp_release)), halt().')
root="`erl -noshell +sbwt off -eval 'io:put_chars(code:root_dir()), halt().'`"
echo "erl +P 10 of OTP $release in $root"
erl -version
erl -make
(cd src && erl -noinput +P 10 -pa ../ebin -run gen all -run init stop)
erl -noshell -pa ebin -s docs make -s erlang halt
if ! erl -noshell +K maybe -eval 'case code:ensure_loaded(crypto) of {module, _} -> halt(0); _ -> halt(1) end.'; then
  echo "crypto is missing" >&2
fi
cat > run.sh <<'END'
exec erl +P 10 -pa ebin
END
elixir -e 'IO.puts(System.version())'

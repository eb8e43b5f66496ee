#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
H=$(hostname -s)
NODE=invoices@$H COOKIE=invoices-cookie
cd "$TMP"
# as on the old server: compiled in place, one directory per dependency in the code path
mkdir -p lib/invoices/ebin && cp src/invoices.app lib/invoices/ebin/
elixirc -o lib/invoices/ebin src/invoices.ex >"$LOG/compile.out" 2>&1 || fail "compile"
PA=(-pa "$TMP/lib/invoices/ebin")
for d in decimal jason plug plug_crypto mime telemetry ecto db_connection postgrex phoenix phoenix_pubsub phoenix_html gettext \
         swoosh tesla hackney certifi idna metrics mimerl parse_trans ssl_verify_fun castore finch mint nimble_pool nimble_options \
         cowboy cowlib ranch timex tzdata combine oban ex_money cldr cldr_numbers; do
    mkdir -p lib/$d/ebin && echo "{application, $d, [{vsn, \"1.0.0\"}]}." > lib/$d/ebin/$d.app
    PA+=(-pa "$TMP/lib/$d/ebin")
done
daemon vm elixir --sname invoices --cookie $COOKIE "${PA[@]}" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:invoices); Invoices.Load.start(120)'
VM=$LAST
until_true 50 'is_pid(whereis('"'Elixir.Invoices.Tenants'"')).'
nap 6
ready_and_hold

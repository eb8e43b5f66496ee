#!/usr/bin/env bash
# Tunes real software (RabbitMQ under PerfTest, ejabberd under XMPP over WebSocket), compares the result with the default in an independent
# run, and writes both outputs to docs/tuned.md. Takes an hour and a half for each, on a quiet host. TUNED=rabbitmq or TUNED=ejabberd only
# runs one of them, and leaves the other section unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
beamtune=$(realpath "$1")
work=$(mktemp -d)
finish() {
    # After a failure the studies are kept, so that they can be resumed.
    if [ $? -eq 0 ]; then rm -rf "$work"; else echo "studies are in $work" >&2; fi
}
trap finish EXIT
# The target may run as another user.
chmod 755 "$work"
cp scripts/tuned/ejabberd.yml "$work"
# At 400 stanzas a second, a stanza costs twice as much CPU time, mostly for wake-ups, and the cost varies between trials by nearly as much.
sed "s/^rate = 400$/rate = 2000/" fixtures/load/xmpp-websocket.toml >"$work/xmpp.toml"

# Arguments: name, description, options of tune and compare
tuned() {
    local name=$1 about=$2
    shift 2
    case ",${TUNED:-$name}," in *",$name,"*) ;; *) return 0 ;; esac
    local began status=0 options
    options=$(printf '%q ' "$@")
    began=$(date +%s)
    "$beamtune" tune "$@" --budget "${BUDGET:-80m}" --study "$work/$name.study" -o "$work/$name.args" >"$work/report" || status=$?
    [ "$status" -le 1 ] || exit "$status"
    {
        echo "$about $(date +%F), $(($(date +%s) - began)) s, $(nproc) CPUs:"
        echo
        echo '```'
        echo "\$ beamtune tune $options--budget ${BUDGET:-80m}"
        cat "$work/report"
        echo '```'
        if [ -e "$work/$name.args" ]; then
            flags=$(grep -v '^#' "$work/$name.args" | tr '\n' ' ')
            "$beamtune" compare --b "$flags" "$@" --seed 2 --study "$work/$name-again.study" >"$work/again" || status=$?
            [ "$status" -le 1 ] || exit "$status"
            echo
            echo "The written file:"
            echo
            echo '```'
            cat "$work/$name.args"
            echo '```'
            echo
            echo "The second run:"
            echo
            echo '```'
            echo "\$ beamtune compare --b '$flags' $options--seed 2"
            cat "$work/again"
            echo '```'
        fi
    } | sed "s|$HOME|\$HOME|g; s|$work|FOLDER|g" >"$work/part"
    sed -i -e "/^<!-- $name: begin -->$/r $work/part" -e "/^<!-- $name: begin -->$/,/^<!-- $name: end -->$/{/^<!-- $name: /!d}" \
        docs/tuned.md
}

perftest=${PERFTEST:-$(scripts/perftest.sh)}
tuned rabbitmq "RabbitMQ $(dpkg-query -W -f '${Version}' rabbitmq-server 2>/dev/null) with 4,000 messages of 1 kB a second through four queues." \
    --rabbitmq --no-pins --guard p99:+10% --guard rss:+20% --for 12s \
    --load-cmd "java -XX:+UseSerialGC -Xmx256m -cp '$perftest/*' com.rabbitmq.perf.PerfTest --uri amqp://127.0.0.1:\$BEAMTUNE_PORT --qos 50 --queue-pattern load_%d --queue-pattern-from 1 --queue-pattern-to 4 --producers 4 --consumers 4 --rate 1000 --size 1000 --time 22"

tuned ejabberd "ejabberd $(dpkg-query -W -f '${Version}' ejabberd 2>/dev/null) with a hundred users over WebSocket, 2,000 stanzas a second." \
    --ejabberd="$work" --no-pins --load "$work/xmpp.toml" --guard p99:+10% --guard rss:+20% --for 12s --warm-up 12s

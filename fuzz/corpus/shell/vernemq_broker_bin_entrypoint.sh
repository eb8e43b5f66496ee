#!/bin/bash
set -e
ARGS=/vernemq/etc/vm.args

# the address of the container is known only now
sed -i "s/-name VerneMQ@.*/-name VerneMQ@$(hostname -i)/" "$ARGS"

if [ -n "$DOCKER_VMQ_PORTS" ]; then
  echo "+Q $DOCKER_VMQ_PORTS" >> "$ARGS"
fi
cat >> "$ARGS" <<EOF
+sbwt none
+sbwtdcpu none
+sbwtdio none
EOF

export ERL_CRASH_DUMP_SECONDS=30
exec /vernemq/bin/vernemq console -noshell -noinput

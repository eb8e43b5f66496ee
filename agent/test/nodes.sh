# Sourced by run.sh, cost.sh and fixtures/make.sh. Compiles the test modules, and copies agent_target into each release's root.
work=$(mktemp -d)
copies=()
trap 'rm -rf "$work" "${copies[@]}"' EXIT
export AGENT_PREBUILT=$PWD/agent/prebuilt AGENT_SOURCE=$PWD/agent/src/beamtune_agent.erl AGENT_FIXTURES=$PWD/agent/fixtures
mkdir "$work/client" "$work/target23" "$work/target25"
erlc -Werror -o "$work/client" agent/test/agent_{client,nodes,test,cost,fixtures}.erl agent/test/agent_*_test.erl
erlc -Werror -o "$work/target25" agent/test/agent_target.erl
erlc -Werror +r23 -o "$work/target23" agent/test/agent_target.erl
epmd -daemon

# prepare RELEASE: sets root (the folder that is the node's root directory) and beams (the folder of agent_target within that
# root).
prepare() {
    if [ "$1" = 25 ]; then
        root=/
    else
        root=$(scripts/otp.sh list | sed -n "s/^$1 //p")
        [ -n "$root" ] || { echo "skipped, because OTP $1 is not installed (make otp)"; return 1; }
    fi
    local copy
    copy=$(mktemp -d "${root%/}/tmp/beamtune-agent-test.XXXXXX")
    copies+=("$copy")
    if [ "$1" -le 24 ]; then cp "$work"/target23/* "$copy"; else cp "$work"/target25/* "$copy"; fi
    chmod -R a+rX "$copy"
    beams=/tmp/${copy##*/}
}

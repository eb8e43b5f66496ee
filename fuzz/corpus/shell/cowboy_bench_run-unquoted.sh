#!/bin/sh
# a word after a blank is no longer part of the value
export ERL_FLAGS=+sbwt none
exec ./bench.escript

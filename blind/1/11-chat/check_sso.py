#!/usr/bin/python3
"""External authentication: asks the company's single sign-on, which takes 0.7 to 1.1 s for an answer."""
import os, random, struct, sys, time

def read(n):
    b = b""
    while len(b) < n:
        c = os.read(0, n - len(b))
        if not c:
            sys.exit(0)
        b += c
    return b

while True:
    n = struct.unpack(">H", read(2))[0]
    cmd, user = read(n).split(b":")[:2]
    if cmd == b"auth":
        time.sleep(random.uniform(0.7, 1.1))
    os.write(1, struct.pack(">HH", 2, 1))

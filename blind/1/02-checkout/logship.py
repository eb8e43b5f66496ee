"""Stand-in for a container's log driver: takes what the service prints, at the pace of the remote log store."""
import os, sys, time

RATE = 40_000     # bytes a second
fd = os.open(sys.argv[1], os.O_RDONLY)
out = open(sys.argv[2], "wb")
seen = 0
while True:
    chunk = os.read(fd, RATE // 20)
    if not chunk:
        break
    seen += len(chunk)
    if seen < 20_000_000:
        out.write(chunk)
    time.sleep(len(chunk) / RATE)

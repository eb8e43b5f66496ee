"""The switches lay down their files: 20000 calls in each."""
import os, random, sys, time
spool, per_second = sys.argv[1], float(sys.argv[2])
for k in range(3):
    with open("%s/sample%d" % (spool, k), "w") as f:
        for _ in range(20000):
            f.write("+49%d;+49%d;%d;cell%d;Gespräch über Netz %d, Tarif »Heimat«\n" % (random.randrange(30000, 50000), random.randrange(10**9), random.randrange(1, 3000), random.randrange(4000), random.randrange(9)))
n, nxt = 0, time.monotonic()
while True:
    n += 1
    os.link("%s/sample%d" % (spool, n % 3), "%s/%08d.cdr" % (spool, n))
    nxt += 1 / per_second
    time.sleep(max(0, nxt - time.monotonic()))

"""Patients: enter, talk for a while, leave."""
import asyncio, random, sys, time
port, report, rate = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
n = 0; inside = waiting = 0
t = {"enter": [], "say": [], "doctor": []}
async def ask(r, w, line):
    a = time.monotonic()
    w.write(line.encode() + b"\n"); d = await r.readline()
    if not d: raise OSError
    t[line.split()[0]].append(time.monotonic() - a)
async def patient(me):
    global inside, waiting
    try:
        r, w = await asyncio.open_connection("127.0.0.1", port)
        await ask(r, w, "doctor")
        waiting += 1
        try: await ask(r, w, "enter p%d" % me)
        finally: waiting -= 1
        inside += 1
        try:
            for _ in range(random.randrange(5, 12)):
                await asyncio.sleep(random.uniform(0.5, 1.5)); await ask(r, w, "say hello")
        finally: inside -= 1
        w.close()
    except OSError: pass
async def rep():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            f.write("inside %d waiting %d " % (inside, waiting))
            for k, v in t.items():
                v.sort()
                if v: f.write("%s %.1f/s median %.1f ms max %.1f ms; " % (k, len(v) / 5, 1000 * v[len(v) // 2], 1000 * v[-1]))
                v.clear()
            f.write("\n")
tasks = set()
async def main():
    tasks.add(asyncio.ensure_future(rep()))
    me, nxt = 0, time.monotonic()
    while True:
        me += 1; nxt += random.expovariate(rate)
        k = asyncio.ensure_future(patient(me)); tasks.add(k); k.add_done_callback(tasks.discard)
        await asyncio.sleep(max(0, nxt - time.monotonic()))
asyncio.run(main())

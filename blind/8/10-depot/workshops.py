"""60 workshops with a good line list parts and get drawings; and small ones with a bad line, of which one more begins
to get a drawing three or four times a second: they read a few hundred bytes a second and wait patiently."""
import asyncio, random, socket, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
stat = {"lists": 0, "drawings": 0, "broken": 0}
slow = []
took = []
async def good():
    await asyncio.sleep(random.random() * 2)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.expovariate(1.5))
                t = time.monotonic()
                if random.random() < 0.8:
                    w.write(b"list %d\n" % random.randrange(9000))
                    if not await asyncio.wait_for(r.readline(), 10): raise OSError
                    stat["lists"] += 1
                else:
                    w.write(b"get %d\n" % random.randrange(9000))
                    n = int(await asyncio.wait_for(r.readline(), 10))
                    await asyncio.wait_for(r.readexactly(n), 10)
                    stat["drawings"] += 1
                took.append(time.monotonic() - t)
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError): stat["broken"] += 1
        if w: w.close()
        await asyncio.sleep(1)
async def bad():
    while True:
        await asyncio.sleep(0.28)
        try:
            s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(2); s.connect(("127.0.0.1", port)); s.sendall(b"get %d\n" % random.randrange(9000)); s.setblocking(False)
            slow.append(s)
        except OSError: stat["broken"] += 1
async def trickle():
    while True:
        await asyncio.sleep(2)
        for s in list(slow):
            try:
                if not s.recv(1000): slow.remove(s); s.close()
            except BlockingIOError: pass
            except OSError: slow.remove(s); s.close()
async def rep():
    while True:
        await asyncio.sleep(2)
        x = sorted(took) or [0]; took.clear()
        with open(report, "a") as f: f.write("%s waiting with a bad line %d took median %.1f max %.1f ms\n" % (stat, len(slow), 1e3 * x[len(x) // 2], 1e3 * x[-1]))
        for k in stat: stat[k] = 0
async def main(): await asyncio.gather(rep(), bad(), trickle(), *[good() for _ in range(60)])
asyncio.run(main())

"""300 stations, ten samples a second each by datagram, and the people who look at them."""
import asyncio, math, random, socket, struct, sys, time
udp, port, report = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", udp))
lat, failed, sent, received = [], 0, 0, 0
async def send():
    global sent
    n = 0
    nxt = time.monotonic()
    while True:
        for part in range(5):
            for i in range(1 + part * 60, 61 + part * 60):
                s.send(struct.pack(">HIh", i, n, int(200 * math.sin(n * i / 50) + random.gauss(0, 60))))
                sent += 1
            nxt = max(nxt + 0.02, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, nxt - time.monotonic()))
        n += 1
async def viewer(i):
    global failed, received
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.uniform(0.3, 1))
                q = random.choice([b"last\n", b"received\n", b"station %d\n" % random.randint(1, 300)])
                t = time.monotonic()
                w.write(q)
                a = await asyncio.wait_for(r.readline(), 20)
                if not a:
                    raise OSError("closed")
                if q == b"received\n":
                    received = int(a)
                lat.append(time.monotonic() - t)
        except (OSError, asyncio.TimeoutError):
            failed += 1
            await asyncio.sleep(1)
async def reporter():
    while True:
        await asyncio.sleep(5)
        lat.sort()
        with open(report, "a") as f:
            f.write("sent %d received %d; %.1f/s median %.1f ms max %.1f ms failed %d\n" % (sent, received, len(lat) / 5, 1000 * lat[len(lat) // 2] if lat else 0, 1000 * lat[-1] if lat else 0, failed))
        lat.clear()
async def main():
    await asyncio.gather(reporter(), send(), *[viewer(i) for i in range(25)])
asyncio.run(main())

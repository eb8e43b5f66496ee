"""60 lecture halls: a sensor each, and 200 displays which show what the sensors say. MQTT 3.1.1."""
import asyncio, random, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
stat = {"in": 0, "sent": 0, "got": 0, "again": 0, "failed": 0}
lat = []

def text(s):
    b = s.encode()
    return len(b).to_bytes(2, "big") + b

def packet(kind, body):
    n, l = len(body), b""
    while True:
        n, d = n >> 7, n & 127
        l += bytes([d | (128 if n else 0)])
        if not n:
            return bytes([kind]) + l + body

async def read(r):
    h = (await r.readexactly(1))[0]
    n = k = 0
    while True:
        d = (await r.readexactly(1))[0]
        n |= (d & 127) << (7 * k)
        k += 1
        if not d & 128:
            break
    return h, await r.readexactly(n)

async def connect(name):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    w.write(packet(0x10, text("MQTT") + bytes([4, 0xC2]) + (60).to_bytes(2, "big") + text(name) + text(name + "@campus.example") + text("x")))
    h, b = await read(r)
    if h != 0x20 or b[1] != 0:
        stat["failed"] += 1
        raise OSError("refused %r" % b)
    return r, w

async def sensor(i):
    await asyncio.sleep(i * 0.05)
    while True:
        w = None
        try:
            r, w = await connect("sensor%d" % i)
            stat["in"] += 1
            n = 0
            try:
                while True:
                    w.write(packet(0x31, text("hall/%d/air" % i) + b"t=%.4f co2=%d" % (time.time(), random.randrange(400, 1500))))
                    n += 1
                    if n % 40 == 0:
                        w.write(b"\xc0\0")
                        await read(r)
                    await w.drain()
                    stat["sent"] += 1
                    await asyncio.sleep(random.uniform(0.3, 0.7))
            finally:
                stat["in"] -= 1
        except (OSError, asyncio.IncompleteReadError):
            stat["again"] += 1
        finally:
            if w:
                w.close()
        await asyncio.sleep(1)

async def display(i):
    await asyncio.sleep(3 + i * 0.03)
    while True:
        w = None
        try:
            r, w = await connect("display%d" % i)
            stat["in"] += 1
            end = time.time() + (random.uniform(10, 30) if i % 5 == 0 else 1e9)
            try:
                w.write(packet(0x82, b"\0\1" + text("hall/%d/+" % (i % 60)) + b"\0"))
                last = time.time()
                while time.time() < end:
                    h, b = await asyncio.wait_for(read(r), 30)
                    if h & 0xF0 == 0x30:
                        stat["got"] += 1
                        k = b.find(b"t=")
                        if not h & 1 and random.random() < 0.1:
                            lat.append(time.time() - float(b[k + 2:].split()[0]))
                    if time.time() - last > 25:
                        w.write(b"\xc0\0")
                        last = time.time()
                w.write(b"\xe0\0")
            finally:
                stat["in"] -= 1
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            stat["again"] += 1
        finally:
            if w:
                w.close()
        await asyncio.sleep(random.uniform(1, 3))

async def reporter():
    while True:
        stat["sent"] = stat["got"] = 0
        lat.clear()
        await asyncio.sleep(5)
        l = sorted(lat)
        with open(report, "a") as f:
            f.write("in %d sent/s %.0f got/s %.0f on the way median %.1f max %.1f ms broken %d refused %d\n" % (
                stat["in"], stat["sent"] / 5, stat["got"] / 5, 1e3 * l[len(l) // 2] if l else 0, 1e3 * l[-1] if l else 0, stat["again"], stat["failed"]))

async def main():
    await asyncio.gather(reporter(), *[sensor(i) for i in range(60)], *[display(i) for i in range(200)])

asyncio.run(main())

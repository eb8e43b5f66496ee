"""500 citizens in 25 rooms; some write, some only read, and some come and go."""
import asyncio, random, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
stat = {"in": 0, "sent": 0, "got": 0, "failed": 0}
lat = []
HEAD = ("<stream:stream to='town.example' xmlns='jabber:client' "
        "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>").encode()

async def until(r, *words):
    buf = b""
    while True:
        d = await r.read(65536)
        if not d:
            raise OSError("closed")
        buf += d
        if any(w in buf for w in words):
            return buf

async def reader(r):
    while True:
        d = await r.read(65536)
        if not d:
            return
        stat["got"] += d.count(b"<body>")
        i = d.rfind(b"<body>t=")
        if i >= 0 and random.random() < 0.02:
            try:
                lat.append(time.time() - float(d[i + 8:i + 25].split(b" ")[0]))
            except ValueError:
                pass

async def citizen(i):
    await asyncio.sleep(i * 0.02)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(HEAD)
            await until(r, b"</stream:features>")
            w.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>")
            if b"<success" not in await until(r, b"<success", b"<failure"):
                raise OSError("refused")
            w.write(HEAD)
            await until(r, b"</stream:features>")
            w.write(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>p</resource></bind></iq>")
            await until(r, b"</iq>", b"/>")
            room = "room%d@rooms.town.example" % (i % 25)
            w.write(("<presence/><presence to='%s/n%d'><x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x></presence>" % (room, i)).encode())
            rd = asyncio.ensure_future(reader(r))
            stat["in"] += 1
            end = time.time() + (random.uniform(20, 60) if i % 10 == 0 else 1e9)
            try:
                while time.time() < end and not rd.done():
                    await asyncio.sleep(random.uniform(2, 8))
                    w.write(("<message type='groupchat' to='%s'><body>t=%.4f hello all</body></message>" % (room, time.time())).encode())
                    await w.drain()
                    stat["sent"] += 1
            finally:
                stat["in"] -= 1
                rd.cancel()
            w.write(b"</stream:stream>")
            w.close()
        except OSError:
            stat["failed"] += 1
        await asyncio.sleep(random.uniform(1, 4))

async def reporter():
    while True:
        stat["sent"] = stat["got"] = 0
        await asyncio.sleep(5)
        l = sorted(lat); lat.clear()
        with open(report, "a") as f:
            f.write("in %d sent/s %.0f got/s %.0f failed %d way median %.1f ms max %.1f ms\n" % (
                stat["in"], stat["sent"] / 5, stat["got"] / 5, stat["failed"],
                1000 * l[len(l) // 2] if l else 0, 1000 * l[-1] if l else 0))

async def main():
    await asyncio.gather(reporter(), *[citizen(i) for i in range(500)])

asyncio.run(main())

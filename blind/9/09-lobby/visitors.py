"""Visitors of a fair: nearly all of them are in the lobby, few in the rooms of the stands."""
import asyncio, random, sys, time
port, report, visitors = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
stat = {"in": 0, "sent": 0, "got": 0, "presence": 0, "failed": 0}
lat = {"lobby": [], "stand": []}
HEAD = ("<stream:stream to='fair.example' xmlns='jabber:client' "
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

async def reader(r, where):
    while True:
        d = await r.read(131072)
        if not d:
            return
        stat["got"] += d.count(b"<body>")
        stat["presence"] += d.count(b"<presence")
        i = d.rfind(b"<body>t=")
        if i >= 0:
            try:
                lat[where].append(time.time() - float(d[i + 8:i + 25].split(b" ")[0]))
            except ValueError:
                pass

async def visitor(i):
    await asyncio.sleep(i * 0.045)
    stand = i % 12 == 0
    where = "stand" if stand else "lobby"
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
            room = ("stand%d" % (i % 5) if stand else "lobby") + "@rooms.fair.example"
            nick = "n%d-%d" % (i, random.randrange(1000))
            rd = asyncio.ensure_future(reader(r, where))
            w.write(("<presence/><presence to='%s/%s'><x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x></presence>" % (room, nick)).encode())
            stat["in"] += 1
            end = time.time() + (random.uniform(20, 60) if i % 8 == 1 else 1e9)     # some look in only
            try:
                while time.time() < end and not rd.done():
                    await asyncio.sleep(random.uniform(8, 28))
                    if random.random() < 0.12 or stand:
                        w.write(("<message type='groupchat' to='%s'><body>t=%.4f hello</body></message>" % (room, time.time())).encode())
                        stat["sent"] += 1
                    else:       # away, back, at a stand, in a talk ...
                        w.write(("<presence to='%s/%s'><show>%s</show><status>%s</status></presence>" % (
                            room, nick, random.choice(["away", "chat", "dnd", "xa"]), random.choice(["at a stand", "in a talk", "coffee"]))).encode())
                    await asyncio.wait_for(w.drain(), 30)
            finally:
                stat["in"] -= 1
                rd.cancel()
            w.write(b"</stream:stream>")
            w.close()
        except (OSError, asyncio.TimeoutError):
            stat["failed"] += 1
        await asyncio.sleep(random.uniform(1, 4))

async def reporter():
    while True:
        stat["sent"] = stat["got"] = stat["presence"] = 0
        await asyncio.sleep(5)
        with open(report, "a") as f:
            f.write("in %d messages sent/s %.1f got/s %.0f presences got/s %.0f failed %d" % (
                stat["in"], stat["sent"] / 5, stat["got"] / 5, stat["presence"] / 5, stat["failed"]))
            for k, l in lat.items():
                l.sort()
                if l:
                    f.write(" %s median %.0f ms max %.0f ms" % (k, 1000 * l[len(l) // 2], 1000 * l[-1]))
                l.clear()
            f.write("\n")

async def main():
    await asyncio.gather(reporter(), *[visitor(i) for i in range(visitors)])

asyncio.run(main())

"""60 agents, each with a customer: the agent pastes an answer in ten parts, the customer's program says ok when all are there."""
import asyncio, random, sys, time
port, report, PAIRS = int(sys.argv[1]), sys.argv[2], 60
HEAD = ("<stream:stream to='help.example' xmlns='jabber:client' "
        "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>").encode()
lat, pings, failed, parts = [], [], [0], [0]
async def until(r, *words):
    buf = b""
    while True:
        d = await r.read(65536)
        if not d:
            raise OSError("closed")
        buf += d
        if any(w in buf for w in words):
            return buf
async def login():
    r, w = await asyncio.open_connection("127.0.0.1", port)
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>")
    if b"<success" not in await until(r, b"<success", b"<failure"):
        raise OSError("refused")
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>p</resource></bind></iq>")
    b = await until(r, b"</iq>")
    w.write(b"<presence/>")
    return r, w, b.split(b"<jid>")[1].split(b"</jid>")[0].decode()
async def pair(i):
    await asyncio.sleep(i * 0.05)
    while True:
        try:
            ra, wa, ja = await login()
            rc, wc, jc = await login()
            drain = asyncio.ensure_future(sink(ra))
            while True:
                t = time.time()
                for k in range(10):
                    wa.write(("<message type='chat' to='%s'><body>part %d %s</body></message>" % (jc, k, "step %d then " % k * 35)).encode())
                got = 0
                while got < 10:
                    d = await asyncio.wait_for(rc.read(65536), 60)
                    if not d:
                        raise OSError("closed")
                    got += d.count(b"</body>")
                lat.append(time.time() - t)
                parts[0] += 10
                await asyncio.sleep(random.uniform(1, 3))
        except (OSError, asyncio.TimeoutError, IndexError):
            failed[0] += 1
            await asyncio.sleep(1)
async def sink(r):
    while await r.read(65536):
        pass
async def main():
    ts = [asyncio.ensure_future(pair(i)) for i in range(PAIRS)]
    while True:
        await asyncio.sleep(5)
        l = sorted(lat); lat.clear()
        with open(report, "a") as f:
            f.write("answers/s %.1f whole answer median %.2f s max %.2f s parts %d failed %d\n" % (
                len(l) / 5, l[len(l) // 2] if l else 0, l[-1] if l else 0, parts[0], failed[0]))
asyncio.run(main())

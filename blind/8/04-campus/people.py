"""
80 desktops are logged in and chat. Then the gateway of the campus' mobile network, which had failed, is back: the app
of 520 phones connects again. It waits four seconds for its log-in; if there is none it hangs up and tries again at once.
"""
import asyncio, base64, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
HEAD = ("<stream:stream to='campus.example' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>").encode()
stat = {"in": 0, "try": 0, "gave_up": 0, "sent": 0, "got": 0}
inside = {"desktop": 0, "phone": 0}
late = []
async def until(r, *words):
    buf = b""
    while True:
        d = await r.read(65536)
        if not d: raise OSError("closed")
        buf += d
        if any(w in buf for w in words): return buf
async def login(r, w, user):
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>" + base64.b64encode(("\0%s\0pw-%s" % (user, user)).encode()) + b"</auth>")
    if b"<success" not in await until(r, b"<success", b"<failure"): raise OSError("refused")
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r</resource></bind></iq>")
    await until(r, b"</iq>")
    w.write(b"<presence/>")
async def stay(r, kind):
    inside[kind] += 1
    buf = b""
    try:
        while True:
            d = await r.read(65536)
            if not d: return
            buf += d
            while b"</message>" in buf:
                m, buf = buf.split(b"</message>", 1)
                if b"<body>" in m: stat["got"] += 1; late.append(time.monotonic() - float(m.split(b"<body>")[1].split()[0]))
    finally: inside[kind] -= 1
async def talk(w, n):
    while True:
        await asyncio.sleep(random.expovariate(1.0))
        w.write(("<message to='desk%d@campus.example/r' type='chat'><body>%f hello</body></message>" % (random.randrange(80), time.monotonic())).encode())
        stat["sent"] += 1
async def desktop(n):
    await asyncio.sleep(n * 0.05)
    while True:
        w = t = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.wait_for(login(r, w, "desk%d" % n), 30)
            t = asyncio.ensure_future(talk(w, n))
            await stay(r, "desktop")
        except (OSError, asyncio.TimeoutError): pass
        if t: t.cancel()
        if w: w.close()
        await asyncio.sleep(2 + random.random() * 5)
async def phone(n):
    await asyncio.sleep(8)
    while True:
        w = None
        stat["try"] += 1
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.wait_for(login(r, w, "phone%d" % n), 4)
            stat["in"] += 1
            await stay(r, "phone")
        except asyncio.TimeoutError: stat["gave_up"] += 1
        except OSError: pass
        if w: w.close()
async def rep():
    while True:
        await asyncio.sleep(3)
        x = sorted(late) or [0]; late.clear()
        with open(report, "a") as f: f.write("%s inside %s messages on the way median %.1f max %.1f ms\n" % ({k: round(v / 3, 1) for k, v in stat.items()}, inside, 1e3 * x[len(x) // 2], 1e3 * x[-1]))
        for k in stat: stat[k] = 0
async def main(): await asyncio.gather(rep(), *[desktop(n) for n in range(80)], *[phone(n) for n in range(520)])
asyncio.run(main())

"""
Nurses and doctors: 700 phones, most of them quiet. One pager service sends 220 pages a second to them, some answer it.
Two old terminals with a wrong password try to log in every 4 s.
"""
import asyncio, random, sys, time
port, report, phones = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
HEAD = ("<stream:stream to='hospital.example' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>").encode()
stat = {"in": 0, "sent": 0, "got": 0, "answers": 0, "refused": 0}
late = []
async def until(r, *words):
    buf = b""
    while True:
        d = await r.read(65536)
        if not d: raise OSError("closed")
        buf += d
        if any(w in buf for w in words): return buf
async def login(res):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>")
    if b"<success" not in await until(r, b"<success", b"<failure"): raise OSError("refused")
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>%s</resource></bind></iq>" % res).encode())
    jid = (await until(r, b"</iq>")).split(b"<jid>")[1].split(b"</jid>")[0].decode()
    w.write(b"<presence/>")
    stat["in"] += 1
    return r, w, jid
async def phone(r, w, pager):
    buf = b""
    while True:
        d = await r.read(65536)
        if not d: return
        buf += d
        while b"</message>" in buf:
            m, buf = buf.split(b"</message>", 1)
            stat["got"] += 1
            late.append(time.monotonic() - float(m.split(b"<body>")[1].split()[0]))
            if random.random() < 0.15:
                w.write(("<message to='%s' type='chat'><body>coming</body></message>" % pager).encode())
async def answers(r):
    while True:
        d = await r.read(65536)
        if not d: return
        stat["answers"] += d.count(b"<body>")
async def terminal():
    while True:
        await asyncio.sleep(4)
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(HEAD); await until(r, b"</stream:features>")
            w.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>AHdhcmQ3AG9sZHBhc3M=</auth>")
            if b"<failure" in await until(r, b"<success", b"<failure"): stat["refused"] += 1
            w.close()
        except OSError: pass
async def rep():
    while True:
        await asyncio.sleep(5)
        x = sorted(late) or [0]; late.clear()
        with open(report, "a") as f: f.write("in %d sent/s %.0f got/s %.0f answers/s %.0f refused %d on the way median %.1f p95 %.1f max %.1f ms\n" % (stat["in"], stat["sent"] / 5, stat["got"] / 5, stat["answers"] / 5, stat["refused"], 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
        for k in ("sent", "got", "answers"): stat[k] = 0
async def main():
    keep = [asyncio.ensure_future(rep()), asyncio.ensure_future(terminal()), asyncio.ensure_future(terminal())]
    pr, pw, pjid = await login("pager")
    keep.append(asyncio.ensure_future(answers(pr)))
    jids = []
    for n in range(phones):
        r, w, j = await login("phone%d" % n)
        jids.append(j); keep.append(asyncio.ensure_future(phone(r, w, pjid)))
        await asyncio.sleep(0.012)
    while True:
        t = time.monotonic()
        for _ in range(22):
            pw.write(("<message to='%s' type='chat'><body>%f room %d bed %d</body></message>" % (random.choice(jids), time.monotonic(), random.randrange(400), random.randrange(4))).encode()); stat["sent"] += 1
        await pw.drain()
        await asyncio.sleep(max(0, 0.1 - (time.monotonic() - t)))
asyncio.run(main())

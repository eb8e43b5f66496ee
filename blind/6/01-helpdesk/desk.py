"""A help desk: each ticket is a room. A customer opens it, an agent enters, both write, both leave; the ticket is done."""
import asyncio, random, sys, time
port, report, rate, burst = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
HEAD = ("<stream:stream to='help.example' xmlns='jabber:client' "
        "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>").encode()
n = 0
stat = {"in": 0, "tickets": 0, "got": 0}
tasks = set()
async def until(r, *words):
    buf = b""
    while True:
        d = await r.read(65536)
        if not d: raise OSError("closed")
        buf += d
        if any(w in buf for w in words): return buf
async def login():
    r, w = await asyncio.open_connection("127.0.0.1", port)
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>")
    if b"<success" not in await until(r, b"<success", b"<failure"): raise OSError("refused")
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>p</resource></bind></iq>")
    await until(r, b"</iq>")
    w.write(b"<presence/>")
    async def read():
        while True:
            d = await r.read(65536)
            if not d: return
            stat["got"] += d.count(b"<body>")
    k = asyncio.ensure_future(read()); tasks.add(k); k.add_done_callback(tasks.discard)
    stat["in"] += 1
    return w
def enter(w, room, nick): w.write(("<presence to='%s/%s'><x xmlns='http://jabber.org/protocol/muc'/></presence>" % (room, nick)).encode())
def leave(w, room, nick): w.write(("<presence type='unavailable' to='%s/%s'/>" % (room, nick)).encode())
def say(w, room, k): w.write(("<message type='groupchat' to='%s'><body>%s</body></message>" % (room, "have you tried to switch it off and on again? " * k)).encode())
async def ticket(c, a, pause):
    global n
    n += 1
    room = "ticket%06d@tickets.help.example" % n
    enter(c, room, "customer"); await asyncio.sleep(0.1 + pause / 4)
    enter(a, room, "agent"); await asyncio.sleep(0.05 + pause / 4)
    for _ in range(random.randrange(6, 14)):
        say(random.choice((c, a)), room, random.randrange(1, 8)); await asyncio.sleep(random.uniform(0, pause))
    leave(c, room, "customer"); leave(a, room, "agent")
    stat["tickets"] += 1
def go(t): tasks.add(t); t.add_done_callback(tasks.discard)
async def rep():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f: f.write("in %d tickets %d got/s %.0f\n" % (stat["in"], stat["tickets"], stat["got"] / 5))
        stat["got"] = 0
async def main():
    go(asyncio.ensure_future(rep()))
    ws = [await login() for _ in range(60)]
    for _ in range(burst // 60):
        await asyncio.gather(*[ticket(*random.sample(ws, 2), 0) for _ in range(60)])
    nxt = time.monotonic()
    while True:
        go(asyncio.ensure_future(ticket(*random.sample(ws, 2), 1.0)))
        nxt += 1 / rate
        await asyncio.sleep(max(0, nxt - time.monotonic()))
asyncio.run(main())

"""The wire service puts its reports into a room of 30 editors; 90 colleagues chat a little in six other rooms."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
stat = {"in": 0, "wire": 0, "wire_got": 0, "chat": 0, "chat_got": 0, "failed": 0}
late = {"w": [], "c": []}
HEAD = ("<stream:stream to='news.example' xmlns='jabber:client' "
        "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>").encode()
async def until(r, *words):
    buf = b""
    while True:
        d = await r.read(65536)
        if not d: raise OSError("closed")
        buf += d
        if any(w in buf for w in words): return buf
async def reader(r):
    while True:
        d = await r.read(65536)
        if not d: return
        for part in d.split(b"<body>")[1:]:
            k = chr(part[0])
            if k not in late: continue
            stat["wire_got" if k == "w" else "chat_got"] += 1
            try: late[k].append(time.time() - float(part[2:].split(b" ")[0]))
            except ValueError: pass
async def enter(room, nick):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>")
    if b"<success" not in await until(r, b"<success", b"<failure"): raise OSError("refused")
    w.write(HEAD); await until(r, b"</stream:features>")
    w.write(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>p</resource></bind></iq>")
    await until(r, b"</iq>", b"/>")
    w.write(("<presence/><presence to='%s@rooms.news.example/%s'><x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x></presence>" % (room, nick)).encode())
    stat["in"] += 1
    asyncio.ensure_future(reader(r))
    return w
def say(w, room, text):
    w.write(("<message type='groupchat' to='%s@rooms.news.example'><body>%s</body></message>" % (room, text)).encode())
async def editor(i):
    await asyncio.sleep(i * 0.05)
    await enter("wire", "editor%d" % i)
    await asyncio.sleep(1e6)
async def colleague(i):
    await asyncio.sleep(i * 0.03)
    w = await enter("desk%d" % (i % 6), "c%d" % i)
    while True:
        await asyncio.sleep(random.uniform(4, 12))
        say(w, "desk%d" % (i % 6), "c=%.4f how long will your piece be" % time.time()); stat["chat"] += 1
async def wire():
    await asyncio.sleep(4)
    w = await enter("wire", "agency")
    await asyncio.sleep(2)
    while True:
        await asyncio.sleep(random.uniform(0.06, 0.1))
        say(w, "wire", "w=%.4f REPORT %s" % (time.time(), "markets move sideways before the decision of the bank " * random.randint(4, 9)))
        stat["wire"] += 1
        await w.drain()
async def rep():
    while True:
        await asyncio.sleep(5)
        m = {k: sorted(v)[len(v) // 2] if v else -1 for k, v in late.items()}
        late["w"].clear(); late["c"].clear()
        with open(report, "a") as f: f.write("%s late median: wire %.2f s, chat %.3f s\n" % (stat, m["w"], m["c"]))
        for k in ("wire", "wire_got", "chat", "chat_got"): stat[k] = 0
async def main():
    await asyncio.gather(rep(), wire(), *[editor(i) for i in range(30)], *[colleague(i) for i in range(90)])
asyncio.run(main())

"""Chat clients: sign in (SASL PLAIN), chat a little, leave, come back. Phones lose their connection all the time."""
import asyncio, base64, random, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
logins, failed, signed_in = [], [0], [0]
HEAD = ("<stream:stream to='chat.example' xmlns='jabber:client' "
        "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>")

async def until(r, *words):
    buf = b""
    while True:
        d = await r.read(8192)
        if not d:
            raise OSError("closed")
        buf += d
        for w in words:
            if w in buf:
                return w

async def client(i):
    user = "user%d" % i
    await asyncio.sleep(random.uniform(0, 8))
    while True:
        t = time.monotonic()
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(HEAD.encode())
            await until(r, b"</stream:features>")
            plain = base64.b64encode(("\0%s\0secret" % user).encode()).decode()
            w.write(("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>%s</auth>" % plain).encode())
            if await until(r, b"<success", b"<failure", b"</stream:stream>") != b"<success":
                raise OSError("refused")
            logins.append(time.monotonic() - t)
            w.write(HEAD.encode())
            await until(r, b"</stream:features>")
            w.write(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>p</resource></bind></iq>")
            await until(r, b"</iq>", b"/>")
            w.write(b"<presence/>")
            signed_in[0] += 1
            try:
                for _ in range(random.randrange(3, 12)):
                    await asyncio.sleep(random.uniform(0.5, 2))
                    w.write(("<message type='chat' to='user%d@chat.example'><body>hello</body></message>" % random.randrange(150)).encode())
                    await w.drain()
            finally:
                signed_in[0] -= 1
            w.write(b"</stream:stream>")
            w.close()
        except OSError:
            failed[0] += 1
        await asyncio.sleep(random.uniform(1, 4))

async def reporter():
    while True:
        await asyncio.sleep(5)
        l = sorted(logins); logins.clear()
        with open(report, "a") as f:
            f.write("logins/s %.1f median %.1f s max %.1f s failed %d signed in %d\n" % (
                len(l) / 5, l[len(l)//2] if l else 0, l[-1] if l else 0, failed[0], signed_in[0]))

async def main():
    await asyncio.gather(reporter(), *[client(i) for i in range(150)])

asyncio.run(main())

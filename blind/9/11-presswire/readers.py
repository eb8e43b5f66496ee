"""Readers of the wire: an app that is opened for some seconds, and each time gives itself a new resource."""
import asyncio, base64, random, sys, time
port, report, readers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
stat = {"in": 0, "logins": 0, "tokens": 0, "messages": 0, "failed": 0}
HEAD = ("<stream:stream to='wire.example' xmlns='jabber:client' "
        "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>").encode()
FEATURES = ["urn:presswire:ability:%s:%d" % (k, n) for k in ["sound", "badge", "picture", "video", "quiet", "group"] for n in range(9)]

async def until(r, *words):
    buf = b""
    while True:
        d = await asyncio.wait_for(r.read(65536), 20)
        if not d:
            raise OSError("closed")
        buf += d
        if any(w in buf for w in words):
            return buf

async def reader(i):
    await asyncio.sleep(i * 0.03)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(HEAD)
            await until(r, b"</stream:features>")
            w.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>" +
                    base64.b64encode(b"\0reader%d\0secret" % i) + b"</auth>")
            if b"<success" not in await until(r, b"<success", b"<failure"):
                raise OSError("refused")
            w.write(HEAD)
            await until(r, b"</stream:features>")
            w.write(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>app-%08x</resource></bind></iq>" % random.getrandbits(32))
            await until(r, b"</iq>")
            stat["logins"] += 1
            stat["in"] += 1
            try:
                w.write(("<iq type='set' id='p'><push xmlns='urn:presswire:push'><token>%0160x</token><device os='%s'>%s</device></push></iq><presence/>" % (
                    random.getrandbits(640), random.choice(["13.1", "14.0", "17.4"]), "".join("<ability var='%s'/>" % f for f in FEATURES))).encode())
                if b"type='result'" in await until(r, b"id='p'"):
                    stat["tokens"] += 1
                for _ in range(random.randint(1, 4)):
                    await asyncio.sleep(random.uniform(1.5, 3))
                    w.write(b"<message to='reader%d@wire.example' type='chat'><body>have you read this?</body></message>" % random.randrange(readers))
                    stat["messages"] += 1
            finally:
                stat["in"] -= 1
            w.write(b"</stream:stream>")
            w.close()
        except (OSError, asyncio.TimeoutError):
            stat["failed"] += 1
        await asyncio.sleep(random.uniform(0.3, 2))

async def reporter():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            f.write("in %d logins/s %.1f tokens/s %.1f messages/s %.1f failed %d\n" % (stat["in"], stat["logins"] / 5, stat["tokens"] / 5, stat["messages"] / 5, stat["failed"]))
        for k in ("logins", "tokens", "messages"):
            stat[k] = 0

async def main():
    await asyncio.gather(reporter(), *[reader(i) for i in range(readers)])

asyncio.run(main())

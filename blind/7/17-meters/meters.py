"""
Meters with a modem: log in, send a reading every 10 s or so over a channel of their own, and stay connected.
Now and then a meter loses the radio network: its packets (also FIN or RST) do not arrive any more. It logs in anew.
TCP_REPAIR lets a socket vanish without a packet, just as the modem's address does.
"""
import asyncio, random, socket, struct, sys
port, out, meters, before = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
stat = {"readings": 0, "logins": 0, "lost": 0, "got": 0, "errors": 0}
def short(s): b = s.encode(); return bytes([len(b)]) + b
def long_(b): return struct.pack(">I", len(b)) + b
def frame(t, ch, p): return struct.pack(">BHI", t, ch, len(p)) + p + b"\xce"
def method(ch, c, m, p=b""): return frame(1, ch, struct.pack(">HH", c, m) + p)
class Conn:
    async def open(self, name):
        self.r, self.w = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.%d.%d" % (random.randrange(1, 255), random.randrange(1, 255)), 0))
        self.w.write(b"AMQP\x00\x00\x09\x01"); await self.expect(10, 10)
        props = short("connection_name") + b"S" + long_(name.encode())
        self.w.write(method(0, 10, 11, long_(props) + short("PLAIN") + long_(b"\0guest\0guest") + short("en_US"))); await self.expect(10, 30)
        self.w.write(method(0, 10, 31, struct.pack(">HIH", 16, 131072, 0)) + method(0, 10, 40, short("/") + short("") + b"\0")); await self.expect(10, 41)
        stat["logins"] += 1
        return self
    async def one(self):
        t, ch, n = struct.unpack(">BHI", await self.r.readexactly(7))
        return t, (await self.r.readexactly(n + 1))[:-1]
    async def expect(self, c, m):
        while True:
            t, p = await self.one()
            if t == 1:
                got = struct.unpack(">HH", p[:4])
                if got == (c, m): return p
                if got in ((10, 50), (20, 40)): raise OSError(p)
    async def call(self, ch, c, m, p, rc, rm):
        self.w.write(method(ch, c, m, p)); return await self.expect(rc, rm)
    async def vanish(self):
        await asyncio.sleep(0.6)                        # all is acknowledged by then
        s = self.w.get_extra_info("socket")
        s.setsockopt(socket.IPPROTO_TCP, 19, 1)     # TCP_REPAIR
        self.w.transport.abort()
        stat["lost"] += 1
async def meter(n):
    await asyncio.sleep(random.uniform(0, 8))
    while True:
        try:
            c = await Conn().open("meter %05d" % n)
            while random.random() > 0.22:
                await c.call(1, 20, 10, short(""), 20, 11)
                body = ("meter=%05d;kwh=%.2f" % (n, random.uniform(1, 9999))).encode()
                c.w.write(method(1, 60, 40, b"\0\0" + short("") + short("readings") + b"\0") + frame(2, 1, struct.pack(">HHQH", 60, 0, len(body), 0)) + frame(3, 1, body))
                await c.call(1, 20, 40, struct.pack(">H", 200) + short("") + b"\0\0\0\0", 20, 41)
                stat["readings"] += 1
                await asyncio.sleep(random.uniform(5, 12))
            await c.vanish()
        except OSError: stat["errors"] += 1; await asyncio.sleep(2)
async def earlier(k):
    for i in range(k):
        c = await Conn().open("meter %05d" % random.randrange(meters)); await c.vanish()
async def consumer():
    c = await Conn().open("billing")
    await c.call(1, 20, 10, short(""), 20, 11)
    await c.call(1, 50, 10, b"\0\0" + short("readings") + b"\x02" + long_(b""), 50, 11)
    await c.call(1, 60, 20, b"\0\0" + short("readings") + short("billing") + b"\x02" + long_(b""), 60, 21)
    async def read():
        while True:
            t, p = await c.one()
            if t == 3: stat["got"] += 1
    return asyncio.ensure_future(read())
async def main():
    keep = [await consumer()]
    await asyncio.gather(*[earlier(before // 45) for _ in range(45)])
    keep += [asyncio.ensure_future(meter(n)) for n in range(meters)]
    while True:
        await asyncio.sleep(3)
        with open(out, "a") as f: f.write("%s\n" % stat)
asyncio.run(main())

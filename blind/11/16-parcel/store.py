"""the store of the events: takes a line, answers with a line"""
import asyncio, sys

class Store(asyncio.Protocol):
    def connection_made(self, t):
        self.t = t
        self.n = 0
    def data_received(self, b):
        k = b.count(b"\n")
        self.n += k
        self.t.write(b"ok\n" * k)

async def main():
    s = await asyncio.get_running_loop().create_server(Store, "127.0.0.1", 0)
    with open(sys.argv[1], "w") as f:
        f.write("%d\n" % s.sockets[0].getsockname()[1])
    await s.serve_forever()

asyncio.run(main())

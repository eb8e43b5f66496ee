"""People with memory cards: 90 pictures a second, some of them broken."""
import asyncio, random, struct, sys, time, zlib
port, report = int(sys.argv[1]), sys.argv[2]
t, got, tasks = [], {}, set()
async def picture():
    a = time.monotonic()
    try:
        r, w = await asyncio.open_connection("127.0.0.1", port)
        px = random.randbytes(160 * 60)
        crc = zlib.crc32(px) if random.random() > 0.03 else 7
        b = b"PIC" + struct.pack(">HHI", 160, 60, crc) + px
        w.write(struct.pack(">I", len(b)) + b)
        n, = struct.unpack(">I", await r.readexactly(4)); d = await r.readexactly(n)
        k = d.split()[0].decode(); got[k] = got.get(k, 0) + 1
        w.close()
    except OSError: got["failed"] = got.get("failed", 0) + 1
    t.append(time.monotonic() - a)
async def rep():
    while True:
        await asyncio.sleep(5); t.sort()
        with open(report, "a") as f: f.write("%s median %.1f ms p99 %.1f ms max %.1f ms\n" % (got, 1000 * t[len(t) // 2], 1000 * t[int(len(t) * .99)], 1000 * t[-1]))
        t.clear(); got.clear()
async def main():
    k = asyncio.ensure_future(rep()); tasks.add(k)
    nxt = time.monotonic()
    while True:
        k = asyncio.ensure_future(picture()); tasks.add(k); k.add_done_callback(tasks.discard)
        nxt += 1 / 90
        await asyncio.sleep(max(0, nxt - time.monotonic()))
asyncio.run(main())

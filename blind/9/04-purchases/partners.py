"""Partners: orders as JSON, some with the signed document (PDF in base64) in it."""
import asyncio, base64, json, os, random, struct, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
PDFS = [base64.b64encode(os.urandom(random.randrange(120000, 240000))).decode() for _ in range(12)]
lat = {"plain": [], "document": []}
failed = 0

def order(doc):
    o = {"partner": "p%d" % random.randrange(200), "currency": "EUR",
         "lines": [{"article": "A-%05d" % random.randrange(99999), "text": "Order line, \"standard\" quality",
                    "quantity": random.randint(1, 40), "price": random.randint(100, 9900) / 100 + 0.001} for _ in range(random.randint(3, 25))]}
    if doc:
        o["attachment"] = random.choice(PDFS)
    return json.dumps(o).encode()

async def partner(i):
    global failed
    await asyncio.sleep(i * 0.05)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.uniform(0.3, 1.3))
                doc = random.random() < 0.5
                b = order(doc)
                t = time.monotonic()
                w.write(struct.pack(">I", len(b)) + b)
                await w.drain()
                n = struct.unpack(">I", await asyncio.wait_for(r.readexactly(4), 30))[0]
                if b"taken" not in await r.readexactly(n):
                    failed += 1
                lat["document" if doc else "plain"].append(time.monotonic() - t)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            failed += 1
            await asyncio.sleep(1)

async def reporter():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            for k, l in lat.items():
                l.sort()
                if l:
                    f.write("%s %.1f/s median %.1f ms p95 %.1f ms; " % (k, len(l) / 5, 1000 * l[len(l) // 2], 1000 * l[int(len(l) * 0.95)]))
                l.clear()
            f.write("failed %d\n" % failed)

async def main():
    await asyncio.gather(reporter(), *[partner(i) for i in range(int(sys.argv[3]))])
asyncio.run(main())

"""Partners deliver their applications as XML files into the drop folder."""
import os, random, sys, time

drop, n = sys.argv[1], 0
random.seed(4)
words = "project river school music garden research bridge water heating solar youth archive".split()

def application(i):
    f = "".join("<item no=\"%d\"><title>%s %s</title><amount currency=\"EUR\">%d</amount><year>%d</year></item>" % (
        k, random.choice(words), random.choice(words), random.randrange(100, 9000), 2020 + k) for k in range(4))
    return ("  <application id=\"a%d\"><fund>f%d</fund><applicant><name>%s %s</name><city>%s</city></applicant><budget>%s</budget>"
            "<text>%s</text></application>\n" % (i, random.randrange(20), random.choice(words), random.choice(words), random.choice(words), f,
                                                " ".join(random.choices(words, k=12))))

files = ["<?xml version=\"1.0\"?>\n<applications>\n" + "".join(application(i) for i in range(4500)) + "</applications>\n" for _ in range(4)]
while True:
    n += 1
    name = os.path.join(drop, "delivery%06d" % n)
    if len(os.listdir(drop)) < 6:
        with open(name + ".part", "w") as f:
            f.write(files[n % 4])
        os.rename(name + ".part", name + ".xml")
    time.sleep(random.uniform(2.5, 4.5))

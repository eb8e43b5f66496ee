# the archive's host is overcommitted: the guest gets the CPU for a few milliseconds of each second
import os, signal, sys, time
pid = int(sys.argv[1])
time.sleep(1)
while True:
    os.kill(pid, signal.SIGSTOP); time.sleep(1.4)
    os.kill(pid, signal.SIGCONT); time.sleep(0.012)

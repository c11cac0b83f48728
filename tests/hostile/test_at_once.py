"""Threads call, the main thread forks and is interrupted, and the cache is deleted, all at once: every call that is not
interrupted is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, os, shutil, signal, sys, threading, time
import torch, torch.nn.functional as F
import polyphase.functional as P

torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
cache, until = os.environ["POLYPHASE_CACHE_DIR"], time.monotonic() + float(sys.argv[1])
image = torch.rand(1, 2, 6, 7)
calls = [
    (lambda: P.flip(image, (3,)), torch.flip(image, (3,))),
    (lambda: P.pad(image, (1, 1)), F.pad(image, (1, 1))),
]
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may ignore it
wrong, seen = [], dict(interrupted=0, forked=0, called=0)

def is_right():
    return all(torch.allclose(call(), want) for call, want in calls)

def call():
    while time.monotonic() < until:
        if not is_right():
            wrong.append("a thread's call")
        seen["called"] += 1

def delete():
    while time.monotonic() < until:
        shutil.rmtree(cache, ignore_errors=True)
        time.sleep(0.4)

def interrupt():
    while time.monotonic() < until:
        time.sleep(0.15)
        os.kill(os.getpid(), signal.SIGINT)

def fork():
    child = os.fork()
    if child == 0:
        os._exit(0 if is_right() else 1)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status:
                wrong.append(f"a child ended with {status}")
            seen["forked"] += 1
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    wrong.append("a child never ended")

threads = [threading.Thread(target=one) for one in (call, call, delete, interrupt)]
for one in threads:
    one.start()
while True:  # all of it within the try: an interrupt may come late
    try:
        if not any(one.is_alive() for one in threads):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            break
        if not is_right():
            wrong.append("the main thread's call")
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        fork()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    except KeyboardInterrupt:
        seen["interrupted"] += 1
if not is_right():
    wrong.append("the last call")
print(json.dumps([wrong, seen]))
"""


def test_at_once(tmp_path: Path) -> None:
    environment = os.environ | {"POLYPHASE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, "3"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr[-3000:]
    wrong, seen = json.loads(ended.stdout)
    assert wrong == []
    assert min(seen.values()) > 0, seen

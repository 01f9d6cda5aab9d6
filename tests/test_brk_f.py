import threading, time
from typing import Any
import pytest, redis
from tests.e2e.solo import SoloWorker, tone
MODES = {"oom": ("maxmemory", "1", "0"), "noreplicas": ("min-replicas-to-write", "3", "0"), "readonly": None}
@pytest.mark.parametrize("mode", MODES)
def test_flap(own_valkey, tmp_path, mode):
    with SoloWorker(own_valkey.url, tmp_path, VOICEMILL_RETRY_SECONDS="0.1", **tone(seconds_per_segment=0.01)) as w:
        c: Any = redis.Redis.from_url(own_valkey.url)
        jid = w.submit(*[f"text {n}" for n in range(150)])
        end = time.monotonic() + 15
        bad = 0
        while time.monotonic() < end and w.exit_status is None and not w.has_ended(jid):
            if MODES[mode]: c.config_set(MODES[mode][0], MODES[mode][1])
            else: c.replicaof("127.0.0.1", 1)
            time.sleep(.03)
            if MODES[mode]: c.config_set(MODES[mode][0], MODES[mode][2])
            else: c.replicaof("NO", "ONE")
            bad += 1
            for _ in range(5): w.tick(); time.sleep(.01)
        died = w.exit_status
        if died is None:
            t = time.monotonic() + 30
            while time.monotonic() < t and w.exit_status is None and not w.has_ended(jid): time.sleep(.1)
        items = w.store.items(jid, limit=200)
        from collections import Counter
        print("RESULT", mode, "flaps", bad, "died", died, w.exit_status, Counter((i.status.value, i.attempts) for i in items))
        open(f"/tmp/brk/f-{mode}.log", "w").write(w.log)

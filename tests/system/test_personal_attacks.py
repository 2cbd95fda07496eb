# ctest: timeout 200
"""Personal Warren runs when others work against them: GitHub, owner and installation change under a call, everything is
killed after every step, and whoever looks at logs, database, disk, processes and cores finds no secret (contract 6)."""

import base64
import contextlib
import errno
import os
import secrets
import signal
import threading
import time

from github_server import repo
from harness import main, wait_for
from personal_world import PLANTED, PersonalTest


def needles():
    """The planted text as it is, in hex, and as each alignment of base64 shows it."""
    out = [PLANTED.encode(), PLANTED.encode().hex().encode()]
    for shift in range(3):
        coded = base64.b64encode(b"x" * shift + PLANTED.encode())
        out.append(coded[4 if shift else 0:len(coded) // 4 * 4 - 4])
    return out


def in_file(path, wanted):
    """What of wanted the file holds; its holes are passed over."""
    found = set()
    with open(path, "rb") as f:
        end, at = os.fstat(f.fileno()).st_size, 0
        while at < end:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError as e:
                if e.errno == errno.ENXIO:
                    break
                raise
            stop = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            while at < stop:
                data = os.pread(f.fileno(), min(stop - at, 1 << 24), at)
                if not data:
                    break
                found |= {w for w in wanted if w in data}
                at += len(data) if at + len(data) >= stop or len(data) <= 256 else len(data) - 256
    return found


class Attacks(PersonalTest):
    def test_what_changes_while_github_is_asked(self):
        w = self.world()
        w.sign_in()
        run_id = "run-" + secrets.token_hex(4)
        grant = w.reserve(w.task(run_id, w.tokens(run_id)))["grant"]
        claim = lambda: w.run("POST", "/claim", {"grant": grant, "runId": run_id})

        def meanwhile(change):
            def answer():
                change()
                return repo()
            self.github.repos["o/n"] = answer
        # The owner leaves the account between the first look and the binding.
        meanwhile(lambda: w.roles("member"))
        self.assertEqual(claim().code, "OWNER_ACCESS_LOST")
        w.roles("technical")
        # The grant dies meanwhile.
        age = lambda by: self.stack.pg.psql(f"UPDATE sandboxd.operations SET grant_expires_at = clock_timestamp() + interval '{by}' "
                                            f"WHERE connection_id = '{w.connection}'")
        meanwhile(lambda: age("-0.1 s"))
        self.assertEqual(claim().code, "GRANT_DENIED")
        age("60 s")
        # The owner takes the reservation back meanwhile.
        meanwhile(w.reset)
        self.assertEqual(claim().code, "GRANT_DENIED")
        self.assertEqual(w.state()["state"], "READY")
        # The same at the allocation: nothing was changed by the refusals.
        self.github.repos["o/n"] = repo()
        run_id, _ = w.claimed()
        meanwhile(lambda: w.roles("billing"))
        self.assertEqual(w.run("POST", f"/{run_id}/sandbox").code, "OWNER_ACCESS_LOST")
        self.assertEqual(w.run("GET", f"/{run_id}/sandbox", status=200)["phase"], "claimed")
        w.roles("admin")
        self.github.repos["o/n"] = repo()
        w.holder(run_id)
        self.assertFalse(w.clean_up(run_id)["authPreserved"])

    def test_github_is_slow_turns_in_circles_revokes(self):
        w = self.world()
        w.sign_in()
        self.github.repos["o/slow"] = lambda: time.sleep(10.8) or repo()
        body = lambda name: {"accountId": w.account, "connectionId": w.connection,
                             "task": w.task("r", w.tokens("r"), repository=name)}
        slow, its = {}, body("o/slow")
        began = time.monotonic()
        waits = threading.Thread(target=lambda: slow.update(got=w.own("POST", "/reserve", its), took=time.monotonic() - began))
        waits.start()
        # Three hops are followed, a fourth is not.
        for i in range(4):
            self.github.repos[f"o/hop{i}"] = (301, {"Location": f"{self.github.url}/repos/o/hop{i + 1}"}, {})
        self.github.repos["o/hop4"] = repo()
        self.assertEqual(w.own("POST", "/reserve", body("o/hop0")).status, 503)
        granted = w.own("POST", "/reserve", body("o/hop1"), 201)
        run_id = "run-" + secrets.token_hex(4)
        self.assertEqual(w.claim(granted["grant"], run_id)["run"]["repository"], "o/hop1")
        # The credential is revoked before the allocation; then GitHub is away; then both are well again.
        self.github.token = "another"
        self.assertEqual(w.run("POST", f"/{run_id}/sandbox").code, "GITHUB_CREDENTIAL_REJECTED")
        self.github.token = w.github_token
        self.github.repos["o/hop4"] = (502, {}, {})
        away = w.run("POST", f"/{run_id}/sandbox")
        self.assertEqual((away.status, away.json["data"]["retryable"]), (503, True))
        self.assertEqual(w.row(run_id, "phase"), "claimed")
        self.github.repos["o/hop4"] = repo()
        w.holder(run_id)
        w.clean_up(run_id)
        waits.join()
        self.assertEqual((slow["got"].status, slow["got"].code), (503, "UNAVAILABLE"))
        self.assertTrue(9.5 < slow["took"] < 13, slow["took"])

    def test_a_kill_after_every_step(self):
        """Control plane and region in turn; the run ends as if nothing had been."""
        w = self.world()
        before = w.sign_in()["authGeneration"]

        def kill(part):
            part.kill9()
            part.start()
            # What the dead one held is due when its lease (25 s) ends: here at once.
            self.stack.pg.psql("UPDATE sandboxd.operations SET next_action_at = clock_timestamp() WHERE next_action_at IS NOT NULL")
        plane, region = self.stack.plane, self.stack.region
        run_id = "run-" + secrets.token_hex(4)
        tokens = w.tokens(run_id)
        grant = w.reserve(w.task(run_id, tokens))["grant"]
        kill(plane)
        receipt = w.claim(grant, run_id)
        kill(plane)
        self.assertEqual(w.claim(grant, run_id), receipt)
        w.run("POST", f"/{run_id}/sandbox", None, 200)
        kill(plane)                                              # preparing or allocating
        kill(region)                                             # in the middle of the deploy, perhaps
        holder = wait_for("the holder is ready", lambda: w.phase(run_id, "ready"), 60)
        kill(plane)
        kill(region)
        started = wait_for("the region is back", lambda: (lambda a: a if a.status == 200 else None)(
            w.run("POST", f"/{run_id}/execution", tokens)), 30).json
        kill(plane)                                              # running, or exited and read back
        self.assertEqual(w.run("POST", f"/{run_id}/execution", tokens, 200)["executionId"], started["executionId"])
        kill(region)
        done = w.exited(run_id)
        self.assertEqual((done["exitCode"], done["cause"]), (0, "COMPLETED"))
        wait_for("the sign-in is read back", lambda: w.row(run_id, "staged_sealed IS NOT NULL") == "t", 30)
        w.run("DELETE", f"/{run_id}/sandbox", status=200)
        kill(plane)                                              # terminating
        kill(region)
        self.assertTrue(w.clean_up(run_id)["authPreserved"])
        state = w.state()
        self.assertEqual((state["state"], state["authGeneration"]), ("READY", before + 1))
        starts = self.stack.pg.psql(f"SELECT count(*) FROM sandboxd.sandboxes WHERE sandbox_id = '{holder['sandboxId']}'")
        self.assertEqual(starts, [["1"]])
        w.auth = w.next_auth                                     # the next run gets what this one left
        again = w.begin()
        self.assertEqual(w.exited(again)["exitCode"], 0)
        w.clean_up(again)

    def test_killed_by_a_signal_and_by_its_lifetime(self):
        w = self.world()
        w.sign_in()
        run_id = w.begin(signal=int(signal.SIGKILL))
        done = w.exited(run_id)
        self.assertEqual((done["exitCode"], done["cause"]), (128 + signal.SIGKILL, "FAILED"))
        self.assertFalse(w.clean_up(run_id)["authPreserved"])
        # The holder's hard lifetime: TIME_LIMIT, destructive, without anybody's call.
        run_id = w.begin(hang=True)
        box = w.run("GET", f"/{run_id}/sandbox", status=200)["sandboxId"]
        self.stack.pg.psql("UPDATE sandboxd.sandboxes SET expires_at = clock_timestamp(), next_action_at = clock_timestamp() "
                           f"WHERE sandbox_id = '{box}'")
        wait_for("the run is over", lambda: w.run("GET", f"/{run_id}/sandbox", status=200)["phase"] == "terminated", 60)
        done = w.run("GET", f"/{run_id}/execution", status=200)
        self.assertEqual((done["exitCode"], done["cause"], done["authPreserved"]), (None, "TIME_LIMIT", False))
        self.assertEqual(w.tenant.get(box)["terminationReason"], "HARD_LIFETIME")
        self.assertEqual(w.state()["state"], "ABSENT")

    def test_z_nothing_planted_is_anywhere_in_clear(self):
        """Sign-in, GitHub credential, prompt and the claims of callback tokens hold the planted text."""
        w = self.world()
        w.sign_in()
        run_id = w.begin(hang=True)
        wanted = needles()
        self.processes(wanted)
        self.cores()
        w.clean_up(run_id)
        dump = self.stack.pg.run("pg_dump", self.stack.pg.url).encode()
        self.assertIn(b"operations", dump)
        self.assertFalse([n for n in wanted if n in dump], "in the database")
        for body in self.answers:
            self.assertFalse([n for n in wanted if n in body], "in an answer")
        files = 0
        for folder, _, names in os.walk(self.stack.dir):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with contextlib.suppress(FileNotFoundError):
                        self.assertFalse(in_file(path, wanted), path)
                        files += 1
        self.assertGreater(files, 500)                           # logs, the database's files, the region's state

    def processes(self, wanted):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) == os.getpid():
                continue
            for part in ("cmdline", "environ"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/{part}", "rb") as f:
                    data = f.read()
                    self.assertFalse([n for n in wanted if n in data], f"{pid} {part}")

    def cores(self):
        """No core file is made, and a program that cores are piped to gets nothing of the memory."""
        sandboxes = [pid for pid, words in self.stack.processes() if "runsc" in words and "boot" in words]
        self.assertTrue(sandboxes)
        for pid in [self.stack.plane.pid, self.stack.region.pid, *sandboxes]:
            with open(f"/proc/{pid}/coredump_filter") as f:
                self.assertEqual(int(f.read(), 16), 0, pid)
            with open(f"/proc/{pid}/limits") as f:
                limit = next(line.split()[4:6] for line in f if line.startswith("Max core file size"))
            self.assertEqual(limit, ["0", "0"], pid)


if __name__ == "__main__":
    main()

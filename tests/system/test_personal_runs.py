# ctest: timeout 400
"""Personal Warren runs on real parts: a scripted owner and a scripted Warren principal go through
success, failure, cancellation, reset, quarantine and recovery of receipts (seed "Personal Warren run
admission", contract 6)."""

import datetime
import hashlib
import hmac
import json
import secrets
import time

import jwt
from github_server import repo
from harness import CONTRACT, PUBLIC, Client, in_parallel, main, wait_for
from personal_world import HOST, PersonalTest, World


def hmac_token(claims, secret):
    signed = jwt.b64(b'{"alg":"HS256","typ":"JWT"}') + "." + jwt.b64(json.dumps(claims).encode())
    return signed + "." + jwt.b64(hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest())


class PersonalRuns(PersonalTest):
    def test_success_keeps_the_next_generation_and_a_receipt(self):
        w = self.world()
        before = w.sign_in()["authGeneration"]
        run_id = w.begin()
        done = w.exited(run_id)
        self.assertEqual((done["exitCode"], done["cause"]), (0, "COMPLETED"), done)
        self.assertEqual(w.state()["state"], "FENCED")       # an exit does not release anything
        self.assertEqual(w.run("POST", f"/{run_id}/execution", w.tokens(run_id), 200)["executionId"], done["executionId"])
        got = w.clean_up(run_id)
        self.assertTrue(got["authPreserved"])
        state = w.state()
        self.assertEqual((state["state"], state["authGeneration"]), ("READY", before + 1))
        self.assertNotIn("operation", state)
        # The next run receives what this one left, and the old receipt stands beside it.
        w.auth = w.next_auth
        second = w.begin()
        self.assertEqual(w.exited(second)["exitCode"], 0)
        receipt = w.run("GET", f"/{run_id}/execution", status=200)
        self.assertEqual((receipt["exitCode"], receipt["cleanupComplete"], receipt["authPreserved"]), (0, True, True))
        self.assertTrue(w.run("DELETE", f"/{run_id}/sandbox", status=200)["cleanupComplete"])
        self.assertEqual(w.run("GET", f"/{second}/sandbox", status=200)["phase"], "ready")
        self.assertEqual(w.run("GET", f"/{run_id}").code, "RUN_COMPLETED")
        self.assertEqual(w.run("POST", f"/{run_id}/sandbox").code, "RUN_COMPLETED")
        w.clean_up(second)

    def test_failure_is_destructive(self):
        w = self.world()
        w.sign_in()
        run_id = w.begin(exit=7)
        done = w.exited(run_id)
        self.assertEqual((done["exitCode"], done["cause"]), (7, "FAILED"))
        self.assertFalse(w.clean_up(run_id)["authPreserved"])
        self.assertEqual(w.state()["state"], "ABSENT")
        refused = w.own("POST", "/reserve", {"accountId": w.account, "connectionId": w.connection,
                                             "task": w.task("r", w.tokens("r"))})
        self.assertEqual(refused.status, 409)

    def test_cancellation_has_no_invented_exit(self):
        w = self.world()
        w.sign_in()
        run_id = w.begin(hang=True)
        self.assertEqual(w.run("GET", f"/{run_id}/execution", status=200)["phase"], "running")
        self.assertFalse(w.clean_up(run_id)["authPreserved"])
        done = w.run("GET", f"/{run_id}/execution", status=200)
        self.assertEqual((done["phase"], done["exitCode"], done["cause"]), ("exited", None, "CANCELLED"))
        box = w.tenant.get(done["sandboxId"])
        self.assertEqual((box["status"], box["terminationReason"]), ("TERMINATED", "RUN_CANCELLED"))

    def test_the_owners_reset_wins(self):
        w = self.world()
        w.sign_in()
        grant = w.reserve(w.task("r", w.tokens("r")))["grant"]
        self.assertEqual(w.reset()["state"], "READY")        # unclaimed: dropped, the sign-in kept
        self.assertEqual(w.run("POST", "/claim", {"grant": grant, "runId": "late"}).code, "GRANT_DENIED")
        run_id, _ = w.claimed()                              # claimed, no holder yet: destroyed
        self.assertEqual(w.reset()["state"], "RESETTING")
        wait_for("the reset is done", lambda: w.state()["state"] == "ABSENT", 30)
        self.assertEqual(w.run("POST", f"/{run_id}/sandbox").code, "RUN_COMPLETED")
        self.assertEqual(w.run("GET", f"/{run_id}/execution", status=200)["cause"], "OWNER_RESET")
        run_id = w.begin()
        self.assertEqual(w.exited(run_id)["exitCode"], 0)
        w.reset()
        wait_for("the reset is done", lambda: w.state()["state"] == "ABSENT", 60)
        receipt = w.run("GET", f"/{run_id}/sandbox", status=200)
        self.assertEqual((receipt["phase"], receipt["authPreserved"]), ("terminated", False))
        self.assertEqual(w.run("GET", f"/{run_id}/execution", status=200)["cause"], "OWNER_RESET")

    def test_missing_sign_in_is_quarantined_and_never_made_anew(self):
        w = self.world()
        w.sign_in()
        run_id = "run-" + secrets.token_hex(4)
        w.claim(w.reserve(w.task(run_id, w.tokens(run_id)))["grant"], run_id)
        self.stack.pg.psql(f"UPDATE sandboxd.connections SET auth_sealed = '\\x00' WHERE connection_id = '{w.connection}'")
        w.run("POST", f"/{run_id}/sandbox", None, 200)
        wait_for("quarantined", lambda: w.phase(run_id, "quarantined"), 30)
        self.assertEqual(w.state()["state"], "QUARANTINED")
        self.assertEqual(w.run("POST", f"/{run_id}/sandbox", None, 200)["phase"], "quarantined")
        self.assertFalse(w.clean_up(run_id)["authPreserved"])
        self.assertEqual(w.state()["state"], "ABSENT")

    def test_grants_and_denials(self):
        w = self.world()
        other = World(self, self.image)
        w.sign_in()
        run_id = "run-" + secrets.token_hex(4)
        reserved = w.reserve(w.task(run_id, w.tokens(run_id)))
        denied = lambda client, grant, run: w.run("POST", "/claim", {"grant": grant, "runId": run}, client=client)
        unknown = denied(None, "sbxg_" + "x" * 43, run_id)
        foreign = denied(other.principal, reserved["grant"], run_id)
        self.assertEqual((unknown.status, unknown.code), (403, "GRANT_DENIED"))
        self.assertEqual([unknown.json["error"], unknown.code], [foreign.json["error"], foreign.code])
        self.assertEqual(w.run("POST", "/claim", {"grant": reserved["grant"], "runId": "claim"}).status, 400)
        # Two principals race with different runs: one wins, the same pair again gives the receipt.
        rivals = [w.principal, w.another_principal()]
        answers = in_parallel(6, lambda i: w.run("POST", "/claim", {"grant": reserved["grant"], "runId": f"{run_id}.{i}"},
                                                 client=rivals[i % 2]))
        self.assertEqual(sorted(a.status for a in answers), [200] + [403] * 5)
        winner = next(i for i, a in enumerate(answers) if a.status == 200)
        again = w.claim(reserved["grant"], f"{run_id}.{winner}")
        self.assertEqual(again["run"], answers[winner].json["run"])
        self.assertNotIn("prompt", json.dumps(again))
        self.assertEqual(w.run("GET", f"/{run_id}.{winner}", status=200)["run"], again["run"])
        missing, theirs = w.run("GET", "/nobody"), other.run("GET", f"/{run_id}.{winner}")
        self.assertEqual([missing.status, missing.code, missing.json["error"]], [theirs.status, theirs.code, theirs.json["error"]])
        self.assertEqual(missing.code, "RUN_NOT_FOUND")
        # Expiry kills an unclaimed grant by the database's clock, and neither fence nor sign-in.
        old = f"{run_id}.{winner}"
        w.clean_up(old)
        # After the cleanup: the pair finds it completed, another run finds nothing, the run id is used for ever.
        self.assertEqual(w.run("POST", "/claim", {"grant": reserved["grant"], "runId": old}).code, "RUN_COMPLETED")
        self.assertEqual(w.run("POST", "/claim", {"grant": reserved["grant"], "runId": run_id + ".new"}).code, "GRANT_DENIED")
        w.sign_in()
        began = time.time()
        late = w.reserve(w.task(run_id, w.tokens(run_id)))
        life = datetime.datetime.fromisoformat(late["expiresAt"]).timestamp() - began
        self.assertTrue(299.9 < life < 302, life)
        self.assertEqual(w.run("POST", "/claim", {"grant": late["grant"], "runId": old}).code, "GRANT_DENIED")
        # 5:00.1 after the reservation, then 4:58.5 (tests/store tries the tenths): a claim asks GitHub, and is judged again after that.
        self.stack.pg.psql("UPDATE sandboxd.operations SET grant_expires_at = clock_timestamp() - interval '0.1 s' "
                           f"WHERE operation_id = '{late['operationId']}'")
        self.assertEqual(w.run("POST", "/claim", {"grant": late["grant"], "runId": run_id}).code, "GRANT_DENIED")
        self.assertEqual(w.state()["state"], "FENCED")
        self.stack.pg.psql("UPDATE sandboxd.operations SET grant_expires_at = clock_timestamp() + interval '1.5 s' "
                           f"WHERE operation_id = '{late['operationId']}'")
        w.claim(late["grant"], run_id)
        # Installation suspended: right after the token kind.
        self.stack.admin("POST", "/installation/suspend", {"installationId": w.installation})
        self.assertEqual(w.run("GET", f"/{run_id}").code, "INSTALLATION_SUSPENDED")
        self.stack.admin("POST", "/installation/activate", {"installationId": w.installation})
        w.clean_up(run_id)

    def test_token_kinds(self):
        w = self.world()
        self.assertEqual(w.run("GET", "/x", client=w.owner).code, "TOKEN_KIND_FORBIDDEN")
        self.assertEqual(w.own("GET", f"?accountId={w.account}", client=w.principal).code, "TOKEN_KIND_FORBIDDEN")
        _, admin = self.stack.member(w.account, ("admin",))
        theirs = Client(self.stack.plane.url, token=admin)
        self.assertEqual(w.own("GET", f"?accountId={w.account}", client=theirs).json["connections"], [])
        refused = w.own("POST", "/reset", {"accountId": w.account, "connectionId": w.connection}, client=theirs)
        self.assertEqual(refused.status, 404)

    def test_github_is_asked_at_reserve_claim_and_allocation(self):
        w = self.world()
        w.sign_in()
        run_id = "run-" + secrets.token_hex(4)
        task = lambda: w.task(run_id, w.tokens(run_id))
        body = lambda: {"accountId": w.account, "connectionId": w.connection, "task": task()}
        cases = [
            (repo(private=False), 403, "REPOSITORY_NOT_PRIVATE"), (repo(push=False), 403, "REPOSITORY_NO_PUSH"),
            (repo(archived=True), 403, "REPOSITORY_NO_PUSH"), ((404, {}, {}), 403, "REPOSITORY_NO_PUSH"),
            ((401, {}, {}), 403, "GITHUB_CREDENTIAL_REJECTED"), ((403, {}, {}), 403, "REPOSITORY_NO_PUSH"),
            ((403, {"X-RateLimit-Remaining": "0"}, {}), 503, "UNAVAILABLE"),
            ((403, {"Retry-After": "60"}, {}), 503, "UNAVAILABLE"), ((429, {"Retry-After": "60"}, {}), 503, "UNAVAILABLE"), ((429, {}, {}), 503, "UNAVAILABLE"),
            ((500, {}, {}), 503, "UNAVAILABLE"), ((200, {}, b"<html>"), 503, "UNAVAILABLE"),
            ((301, {"Location": "https://elsewhere.test/repos/o/m"}, {}), 503, "UNAVAILABLE"),
        ]
        for answer, status, code in cases:
            with self.subTest(code=code, answer=answer[:2]):
                self.github.repos["o/n"] = answer
                got = w.own("POST", "/reserve", body())
                self.assertEqual((got.status, got.code), (status, code))
                self.assertEqual(w.state()["state"], "READY")
                if status == 503:
                    self.assertIn("retry-after", got.headers)
        # A renamed repository answers 301 on the same host.
        self.github.repos["o/renamed"] = repo()
        self.github.repos["o/n"] = (301, {"Location": f"{self.github.url}/repos/o/renamed"}, {})
        grant = w.reserve(task())["grant"]
        self.assertTrue(all(agent for _, _, agent in self.github.asked))
        self.github.repos["o/n"] = repo(private=False)
        self.assertEqual(w.run("POST", "/claim", {"grant": grant, "runId": run_id}).code, "REPOSITORY_NOT_PRIVATE")
        self.github.repos["o/n"] = repo()
        self.assertEqual(w.claim(grant, run_id)["run"]["repository"], "o/n")
        self.github.repos["o/n"] = repo(private=False)       # public between claim and allocation
        self.assertEqual(w.run("POST", f"/{run_id}/sandbox").code, "REPOSITORY_NOT_PRIVATE")
        self.assertEqual(w.run("GET", f"/{run_id}/sandbox", status=200)["phase"], "claimed")
        self.stack.admin("POST", "/member/add", {"accountId": w.account, "userId": w.tenant.user, "roles": ["member"]})
        self.assertEqual(w.run("POST", f"/{run_id}/sandbox").code, "OWNER_ACCESS_LOST")
        self.stack.admin("POST", "/member/add", {"accountId": w.account, "userId": w.tenant.user, "roles": ["admin"]})
        self.assertFalse(w.clean_up(run_id)["authPreserved"])

    def test_callback_tokens(self):
        w = self.world()
        w.sign_in()
        run_id = "run-" + secrets.token_hex(4)
        w.claim(w.reserve(w.task(run_id, w.tokens(run_id)))["grant"], run_id)
        w.holder(run_id)
        good = w.tokens(run_id)
        stranger = jwt.Key(self.folder, "EdDSA", "stranger")
        forged = stranger.token({"runId": run_id, "iss": HOST, "aud": "warren-callback", "exp": int(time.time()) + 60})
        claims = {"runId": run_id, "iss": HOST, "exp": int(time.time()) + 60}
        self.rsa = jwt.Key(self.folder, "RS256", "another-alg")
        bad = {
            "another run": w.tokens("other"), "expired": w.tokens(run_id, exp=int(time.time()) - 31),
            "another issuer": w.tokens(run_id, iss="https://evil.test"), "no exp": w.tokens(run_id, exp=None),
            "swapped": {"callbackToken": good["eventIngestToken"], "eventIngestToken": good["callbackToken"]},
            "equal": {"callbackToken": good["callbackToken"], "eventIngestToken": good["callbackToken"]},
            "another key": {**good, "callbackToken": forged},
            "another alg": {**good, "callbackToken": self.rsa.token({**claims, "aud": "warren-callback"})},
            "the public key as a secret": {**good, "callbackToken": hmac_token({**claims, "aud": "warren-callback"}, self.pem)},
            "alg none": {**good, "callbackToken": jwt.b64(b'{"alg":"none"}') + "." + good["callbackToken"].split(".")[1] + "."},
        }
        for name, tokens in bad.items():
            with self.subTest(name):
                self.assertEqual(w.run("POST", f"/{run_id}/execution", tokens).code, "CALLBACK_TOKEN_DENIED")
        self.assertEqual(w.run("POST", f"/{run_id}/execution", {**good, "callbackToken": 5}).status, 400)
        self.assertEqual(w.run("POST", f"/{run_id}/execution", {**good, "command": ["sh"]}).status, 400)
        self.assertEqual(w.run("GET", f"/{run_id}/execution", status=200)["phase"], "pending")
        w.clean_up(run_id)

    def test_an_image_without_entrypoint_fails_before_anything_starts(self):
        w = World(self, self.stack.image())
        self.github.repos["o/n"] = repo()
        w.sign_in()
        run_id = "run-" + secrets.token_hex(4)
        tokens = w.tokens(run_id)
        w.claim(w.reserve(w.task(run_id, tokens))["grant"], run_id)
        w.holder(run_id)
        got = w.run("POST", f"/{run_id}/execution", tokens)
        self.assertEqual((got.status, got.code), (409, "ENTRYPOINT_MISSING"))
        self.assertEqual(w.run("GET", f"/{run_id}/execution", status=200)["phase"], "pending")
        w.clean_up(run_id)

    def test_a_hostile_entrypoint_cannot_forge_its_exit(self):
        w = self.world()
        w.sign_in()
        run_id = w.begin(attack=True, exit=3)
        done = w.exited(run_id)
        self.assertEqual((done["exitCode"], done["cause"]), (3, "FAILED"))
        w.clean_up(run_id)

    def test_generic_endpoints_refuse_a_holder(self):
        w = self.world()
        w.sign_in()
        run_id = w.begin(hang=True)
        box = w.run("GET", f"/{run_id}/sandbox", status=200)["sandboxId"]
        _, admin = self.stack.member(w.account, ("admin",))
        for token in (w.tenant.token, admin):
            client = Client(self.stack.plane.url, token=token)
            for verb, more in (("execute", {"command": ["id"]}), ("pause", {}), ("resume", {}), ("terminate", {})):
                got = client.post(f"{PUBLIC}/sandbox/{verb}", {"accountId": w.account, "sandboxId": box, **more})
                self.assertEqual((verb, got.status, got.code), (verb, 403, "PERSONAL_RUNTIME"))
            seen = client.get(f"{PUBLIC}/sandbox?accountId={w.account}&sandboxId={box}").json["sandbox"]
            self.assertEqual(seen["status"] in ("READY", "BUSY"), True)
        self.assertIn(box, [s["sandboxId"] for s in w.tenant.list()["sandboxes"]])
        w.clean_up(run_id)

    def test_a_killed_control_plane_goes_on_and_starts_nothing_twice(self):
        w = self.world()
        w.sign_in()
        run_id = w.begin(hang=True)
        first = w.run("GET", f"/{run_id}/execution", status=200)["executionId"]
        self.stack.plane.kill9()
        self.stack.plane.start()
        got = w.run("POST", f"/{run_id}/execution", w.tokens(run_id), 200)
        self.assertEqual((got["executionId"], got["phase"]), (first, "running"))
        # A start that was written down and never reached the region: quarantined, not repeated.
        self.stack.pg.psql("UPDATE sandboxd.operations SET execution = 'starting', execution_id = "
                           f"'01arz3ndektsv4rrffq69g5fav', next_action_at = clock_timestamp() WHERE run_id = '{run_id}'")
        wait_for("quarantined", lambda: w.phase(run_id, "quarantined"), 30)
        done = w.run("GET", f"/{run_id}/execution", status=200)
        self.assertEqual((done["phase"], done["exitCode"], done["cause"]), ("exited", None, "START_UNCERTAIN"))
        self.assertFalse(w.clean_up(run_id)["authPreserved"])

    def test_a_region_restart_keeps_the_run_and_its_exit(self):
        w = self.world()
        w.sign_in()
        run_id = w.begin(hang=True)
        self.stack.region.kill9()
        self.stack.region.start()
        time.sleep(2)
        self.assertEqual(w.run("GET", f"/{run_id}/execution", status=200)["phase"], "running")
        self.assertFalse(w.clean_up(run_id)["authPreserved"])

    def test_z_every_endpoint_was_held_to_the_description(self):
        self.assertEqual(CONTRACT.unseen(("connection_", "run_", "holder_")), [])


if __name__ == "__main__":
    main()

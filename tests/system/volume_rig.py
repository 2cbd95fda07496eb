"""Sandboxes with volumes in one region gateway, on any backend."""

import os

from region_rig import RegionTest, new_id


class VolumeTest(RegionTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.account = new_id()
        cls.make_backend()

    @classmethod
    def make_backend(cls):
        cls.path = os.path.join(cls.stack.dir, "backend")
        os.makedirs(cls.path)
        cls.backend = {"kind": "dir", "path": cls.path}

    def persistence(self, mode, volume, **fields):
        return {"mode": mode, "volumeName": volume, "sizeMb": 100, "snapshotMaxMb": 100,
                "restore": False, "backend": self.backend, **fields}

    def start(self, mode="SNAPSHOT", volume=None, box=None, **fields):
        box = box or new_id()
        restore = fields.pop("restore", False)
        self.deploy(box, accountId=self.account,
                    persistence=self.persistence(mode, volume or f"sbvol-{box}", restore=restore), **fields)
        return box

    def snapshot(self, box, generation=2, **fields):
        return self.must("POST", f"/v1/sandboxes/{box}/snapshot",
                         {"operationId": new_id(), "generation": generation, "exclude": [], "maxMb": 100,
                          "force": False, "backend": self.backend, **fields}, timeout=300)

    def archives(self, box):
        path = os.path.join(self.path, self.account, f"sbvol-{box}", "snapshots", box)
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def shell(self, box, script, generation=99, **fields):
        answer = self.execute(box, ["sh", "-c", script], generation=generation, **fields)
        self.assertEqual(answer["exitCode"], 0, answer)
        return answer["stdout"]

    TREE = "cd /workspace && find . | sort | while read -r f; do stat -c '%n %a %Y %F %h' \"$f\"; done; cat a/x 2>/dev/null"

"""200 sandboxes with address rules of their own at once, on real nftables: the unit test's own check, at
its full size."""
# ctest: timeout 240
# ctest: lock egress

import os
import subprocess
import unittest

from harness import BUILD, main, skip


class Many(unittest.TestCase):
    def test_two_hundred(self):
        program = os.path.join(BUILD, "unit_gateway_test_egress")
        if os.geteuid() != 0:
            skip("egress needs root")
        run = subprocess.run([program], env={**os.environ, "SBX_EGRESS_MANY": "200"}, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertIn("200 attached in ", run.stdout)
        print([line for line in run.stdout.splitlines() if "attached in" in line][0])


if __name__ == "__main__":
    main()

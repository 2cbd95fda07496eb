"""Every test that docs/conformance.md names is there, and docs/api-admin.md has every call of the operator."""

import os
import re
import sys

root = sys.argv[1]
with open(os.path.join(root, "docs/conformance.md")) as f:
    page = f.read()


def source(name):
    """The file that `system/api_create`, `store/moves.c` or `unit/api/test_schema.c` means."""
    folder, base = os.path.split(name)
    base = base if base.startswith("test_") else "test_" + base
    base = base if base.endswith(".c") else base + ".py"
    return os.path.join(root, "tests", folder, base)


named = re.findall(r"`((?:system|store|unit|reconcile)/[\w./]+):(\w+)`", page)
missing = []
for file, test in named:
    path = source(file)
    pattern = rf"\bdef test_{test}\(" if path.endswith(".py") else rf"\b{test}\("
    if not os.path.exists(path):
        missing.append(f"{file}: no such file")
    elif not re.search(pattern, open(path).read()):
        missing.append(f"{file}: no test {test}")
if missing or len(named) < 50:
    sys.exit("docs/conformance.md names what is not there:\n" + "\n".join(missing))
with open(os.path.join(root, "docs/api-admin.md")) as f:
    admin = f.read()
for file in ("routes_admin.c", "routes_runs.c"):
    with open(os.path.join(root, "src/api", file)) as f:
        text = f.read()
    paths = re.findall(r'A "(/[a-z/-]+)"', text) + re.findall(r'OPERATOR\(HTTP_[A-Z]+, "(/[a-z/-]+)"', text)
    paths += re.findall(r'_ROW\("(/[a-z/-]+)"', text) if file == "routes_admin.c" else []
    for path in paths:
        if "/admin/v1" + path not in admin:
            sys.exit(f"docs/api-admin.md does not have /admin/v1{path}")
print(len(named), "tests are named and there")

"""Holds every public request and answer of the system tests to docs/openapi.json: a contract proxy without the
proxy.  Knows the part of JSON Schema that the document uses, and refuses keywords that it does not know."""

import json
import os
import re

KNOWN = {"type", "properties", "required", "additionalProperties", "items", "enum", "minimum", "maximum", "minLength", "maxLength",
         "minItems", "maxItems", "pattern", "format", "oneOf", "$ref", "description", "default", "writeOnly"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
OPERATORS = ("idleTimeoutSeconds", "hardLifetimeSeconds", "suspendedRetentionSeconds")


class Violation(AssertionError):
    pass


class Contract:
    def __init__(self, path):
        with open(path) as f:
            self.doc = json.load(f)
        self.seen = set()
        self.routes = []
        for path, operations in self.doc["paths"].items():
            pattern = re.compile("^" + re.sub(r"\\{[a-zA-Z]+\\}", "[^/]+", re.escape(path)) + "/?$")
            for method, operation in operations.items():
                self.routes.append((method.upper(), pattern, operation))

    def operation(self, method, path):
        for m, pattern, operation in self.routes:
            if m == method and pattern.match(path):
                return operation
        return None

    def fail(self, where, what):
        raise Violation(f"openapi.json: {where}: {what}")

    def check_value(self, value, schema, where):
        unknown = set(schema) - KNOWN
        if unknown:
            self.fail(where, f"keywords that this checker does not know: {unknown}")
        if "$ref" in schema:
            return self.check_value(value, self.doc["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], where)
        if "oneOf" in schema:
            good = 0
            for one in schema["oneOf"]:
                try:
                    self.check_value(value, one, where)
                    good += 1
                except Violation:
                    pass
            return None if good == 1 else self.fail(where, f"{good} of oneOf fit {value!r}")
        kind = schema.get("type")
        if kind == "integer":
            if not isinstance(value, int) or isinstance(value, bool):
                self.fail(where, f"{value!r} is no integer")
        elif kind and not isinstance(value, TYPES[kind]):
            self.fail(where, f"{value!r} is no {kind}")
        if "enum" in schema and value not in schema["enum"]:
            self.fail(where, f"{value!r} is none of {schema['enum']}")
        if isinstance(value, str):
            if "pattern" in schema and not re.search(schema["pattern"], value):
                self.fail(where, f"{value!r} does not match {schema['pattern']}")
            if schema.get("format") == "date-time" and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value):
                self.fail(where, f"{value!r} is no time")
            self.bounds(len(value), schema, "minLength", "maxLength", where)
        if isinstance(value, int) and not isinstance(value, bool):
            self.bounds(value, schema, "minimum", "maximum", where)
        if isinstance(value, list):
            self.bounds(len(value), schema, "minItems", "maxItems", where)
            for i, item in enumerate(value):
                self.check_value(item, schema.get("items", {}), f"{where}[{i}]")
        if isinstance(value, dict):
            self.check_object(value, schema, where)
        return None

    def bounds(self, n, schema, low, high, where):
        if n < schema.get(low, n) or n > schema.get(high, n):
            self.fail(where, f"{n} is out of bounds")

    def check_object(self, value, schema, where):
        for name in schema.get("required", []):
            if name not in value:
                self.fail(where, f"{name} is missing")
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, item in value.items():
            if name in properties:
                self.check_value(item, properties[name], f"{where}.{name}")
            elif more is False:
                self.fail(where, f"{name} is not described")
            elif isinstance(more, dict):
                self.check_value(item, more, f"{where}.{name}")

    def check(self, method, target, body, status, answer, content_type):
        """body and answer: bytes or None. A path that is not described is none of ours."""
        operation = self.operation(method, target.split("?")[0])
        if operation is None:
            return
        name = operation["operationId"]
        if str(status) not in operation["responses"]:
            # What no operation lists: the HTTP edge itself and a server that fails.
            if status in (400, 405, 408, 413, 415, 431, 500):
                return
            self.fail(name, f"status {status} is not described: {answer[:300]!r}")
        (media, content), = operation["responses"][str(status)]["content"].items()
        if content_type != media:
            self.fail(name, f"the answer is {content_type}, described is {media}")
        answer = json.loads(answer)
        codes = operation["responses"][str(status)]["description"].split(", ")
        if status >= 400 and answer["code"] not in codes:
            self.fail(name, f"{status} {answer['code']} is not described, only {codes}")
        self.check_value(answer, content["schema"], f"{name} {status}")
        self.seen.add((name, status))
        if status < 300 and body and "requestBody" in operation:
            # What the server took is what the document allows; so the two are the same from both sides.
            # The bounds of these are the operator's: a test sets them lower than the committed page says.
            sent = {k: v for k, v in json.loads(body).items() if k not in OPERATORS}
            self.check_value(sent, operation["requestBody"]["content"]["application/json"]["schema"], f"{name} request")


    def unseen(self, prefix):
        """Described operations whose names begin so and of which no success was held to the page."""
        good = {name for name, status in self.seen if status < 300}
        return sorted(o["operationId"] for _, _, o in self.routes
                      if o["operationId"].startswith(prefix) and o["operationId"] not in good)


def load(source):
    path = os.path.join(source, "docs/openapi.json")
    return Contract(path) if os.path.exists(path) else None

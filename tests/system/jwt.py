"""Tokens for tests: our own opaque ones by their documented form, and JWTs signed with the openssl
program (the standard library has no signatures)."""

import base64
import hashlib
import json
import os
import secrets
import subprocess
import threading
import zlib

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def base62(value, digits):
    out = ""
    for _ in range(digits):
        value, d = divmod(value, 62)
        out = ALPHABET[d] + out
    return out


def opaque(kind):
    """sbx_<kind>_<43 random><6 CRC32> (contract 1)."""
    body = f"sbx_{kind}_" + "".join(secrets.choice(ALPHABET) for _ in range(43))
    return body + base62(zlib.crc32(body.encode()), 6)


def digest(token):
    return hashlib.sha256(token.encode()).hexdigest()


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _run(*argv, data=None):
    return subprocess.run(argv, input=data, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


class Key:
    """alg: RS256, ES256 or EdDSA."""

    def __init__(self, folder, alg, kid=None):
        self.alg, self.kid = alg, kid or alg.lower()
        self.path = os.path.join(folder, f"{self.kid}.pem")
        kind = {"RS256": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
                "ES256": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
                "EdDSA": ["ED25519"]}[alg]
        _run("openssl", "genpkey", "-algorithm", *kind, "-out", self.path)

    def public_der(self):
        return _run("openssl", "pkey", "-in", self.path, "-pubout", "-outform", "DER")

    def public_pem(self):
        return _run("openssl", "pkey", "-in", self.path, "-pubout").decode()

    def jwk(self):
        der = self.public_der()
        if self.alg == "EdDSA":
            return {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.kid, "x": b64(der[-32:])}
        if self.alg == "ES256":
            return {"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.kid,
                    "x": b64(der[-64:-32]), "y": b64(der[-32:])}
        text = _run("openssl", "rsa", "-in", self.path, "-noout", "-modulus").decode()
        modulus = bytes.fromhex(text.strip().split("=")[1])
        return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": self.kid, "n": b64(modulus), "e": "AQAB"}

    def sign(self, data):
        if self.alg == "EdDSA":
            path = f"{self.path}.{threading.get_ident()}.msg"
            with open(path, "wb") as f:
                f.write(data)
            return _run("openssl", "pkeyutl", "-sign", "-inkey", self.path, "-rawin", "-in", path)
        der = _run("openssl", "dgst", "-sha256", "-sign", self.path, data=data)
        return der if self.alg == "RS256" else _raw_ecdsa(der)

    def token(self, claims, **header):
        head = {"alg": self.alg, "typ": "JWT", "kid": self.kid, **header}
        head = {k: v for k, v in head.items() if v is not None}
        signed = b64(json.dumps(head).encode()) + "." + b64(json.dumps(claims).encode())
        return signed + "." + b64(self.sign(signed.encode()))


def _raw_ecdsa(der):
    """SEQUENCE of two INTEGERs to 32 + 32 bytes."""
    at, parts = 2, []
    for _ in range(2):
        length = der[at + 1]
        parts.append(int.from_bytes(der[at + 2:at + 2 + length], "big").to_bytes(32, "big"))
        at += 2 + length
    return b"".join(parts)


def jwks(*keys):
    return {"keys": [k.jwk() for k in keys]}

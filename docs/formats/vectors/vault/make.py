"""Makes the test vectors of ../../vault.md, by that page alone and by other libraries than Palyra's.

    pip install pynacl argon2-cffi
    python make.py            # writes blobs.json, vaults.json, exports.json

Nothing here is random: running it again gives the same files.
"""

import hashlib
import hmac
import json
import struct
from pathlib import Path

from argon2.low_level import Type, hash_secret_raw
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as xchacha

HERE = Path(__file__).parent
counter = 0


def rand(length):
    """Bytes that look random and are the same each time."""
    global counter
    counter += 1
    return hashlib.shake_256(b"palyra vault vectors %d" % counter).digest(length)


def fields(purpose, *parts):
    """Associated data: the purpose and fields, each after its length."""
    return b"".join(struct.pack(">Q", len(part)) + part for part in (purpose.encode(), *parts))


def hkdf(key, salt, info):
    """HKDF-SHA-256 for 32 bytes."""
    prk = hmac.new(salt, key, hashlib.sha256).digest()
    return hmac.new(prk, info.encode() + b"\x01", hashlib.sha256).digest()


def seal(key, nonce, data, text=b""):
    return xchacha(text, data, nonce, key)


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def u64(number):
    return struct.pack(">Q", number)


def text16(text):
    return struct.pack(">H", len(text)) + text.encode()


VAULT = "vault_01K0000000000000000000000A"
OTHER_VAULT = "vault_01K0000000000000000000000B"


class Kek:
    def __init__(self, vault, kek_id=None, key=None):
        salt = vault.encode()
        self.id = kek_id or rand(16)
        self.key = key or rand(32)
        self.wrapping = hkdf(self.key, salt, "palyra.vault.data-keys.v1")
        self.sealing = hkdf(self.key, salt, "palyra.vault.blob-headers.v1")
        self.vault_sealing = hkdf(self.key, salt, "palyra.vault.vault-header.v1")
        self.retired = hkdf(self.key, salt, "palyra.vault.retired-keys.v1")


class Version:
    """One version, with every field open to be wrong."""

    def __init__(self, number, created, expires, value, **odd):
        self.number, self.created, self.expires, self.value = number, created, expires, value
        self.odd = odd

    def record(self, vault, kek, scope, name):
        data_key, key_nonce, value_nonce = rand(32), rand(24), rand(24)
        key_data = fields(
            "palyra.vault.data-key.v1",
            vault.encode(),
            kek.id,
            self.odd.get("key_scope", scope).encode(),
            self.odd.get("key_name", name).encode(),
            u64(self.odd.get("key_number", self.number)),
        )
        value_data = fields(
            "palyra.vault.value.v1",
            vault.encode(),
            scope.encode(),
            self.odd.get("value_name", name).encode(),
            u64(self.number),
            u64(self.odd.get("value_created", self.created)),
        )
        record = u64(self.number) + u64(self.created) + u64(self.expires)
        record += key_nonce + seal(kek.wrapping, key_nonce, key_data, data_key) + value_nonce
        record += struct.pack(">I", self.odd.get("length", len(self.value)))
        return record, seal(data_key, value_nonce, value_data, self.value)


def blob(vault, kek, scope, name, versions, **odd):
    records = [version.record(vault, kek, scope, name) for version in versions]
    header = text16(odd.get("header_scope", scope)) + text16(odd.get("header_name", name))
    header += bytes([odd.get("count", len(versions))]) + b"".join(record for record, _ in records)
    header += odd.get("after_header", b"")
    sealed = odd.get("magic", b"PLYRSEC1") + odd.get("kek_id", kek.id)
    sealed += struct.pack(">I", odd.get("header_length", len(header))) + header
    nonce = rand(24)
    data = fields("palyra.vault.blob-header.v1", odd.get("seal_vault", vault).encode(), sealed)
    bodies = [body for _, body in records]
    return sealed + nonce + seal(kek.sealing, nonce, data) + b"".join(odd.get("bodies", lambda b: b)(bodies))


def flipped(data, at):
    data = bytearray(data)
    data[at] ^= 1
    return bytes(data)


def blobs():
    kek = Kek(VAULT)
    other_kek = Kek(VAULT)
    cases = []

    def good(name, scope, key, versions):
        shown = [
            {"version": v.number, "created_at": v.created, "expires_at": v.expires or None, "value": v.value.hex()}
            for v in versions
        ]
        data = blob(VAULT, kek, scope, key, versions)
        cases.append({"name": name, "reference": f"vault://{scope}/{key}", "blob": data.hex(), "versions": shown})
        return data

    def bad(name, data, fault, reference="vault://global/github"):
        cases.append({"name": name, "reference": reference, "blob": data.hex(), "fault": fault})

    def one(**odd):
        return Version(1, 1700000000000, 0, b"s3cret", **odd)

    def two():
        return [Version(3, 1700000000000, 1700000600000, b"old"), Version(4, 1700000500000, 0, b"new")]

    def github(versions, **odd):
        return blob(VAULT, kek, "global", "github", versions, **odd)

    plain = good("one version", "global", "github", [one()])
    good("two versions, the first in its grace", "principal:agent:demo", "aws/prod/deploy", two())
    good("one byte that is zero", "skill:acme.weather", "k", [Version(2**63, 1, 0, b"\0")])

    header = len(plain) - 6 - 16 - 40
    bad("empty", b"", "truncated")
    bad("magic alone", plain[:8], "truncated")
    bad("cut within the header", plain[: header - 1], "truncated")
    bad("cut within the seal", plain[: header + 39], "truncated")
    bad("cut within the body", plain[:-1], "truncated")
    bad("without a body", plain[: header + 40], "truncated")
    bad("a byte too many", plain + b"\0", "trailing")
    bad("another format", github([one()], magic=b"PLYRSEC2"), "magic")
    bad("a header length beyond the limit", github([one()], header_length=4097), "length")
    bad("a header length that is too short", github([one()], header_length=len(plain) - 28 - 63), "truncated")
    bad("bytes after the versions", github([one()], after_header=b"\0"), "trailing")
    bad("no version", github([]), "versions")
    bad("a count of seventeen", github([one()], count=17), "versions")
    bad("versions that descend", github([Version(4, 1, 9, b"a"), Version(3, 1, 0, b"b")]), "versions")
    bad("a version twice", github([Version(3, 1, 9, b"a"), Version(3, 1, 0, b"b")]), "versions")
    bad("version zero", github([Version(0, 1, 0, b"a")]), "versions")
    bad("no current version", github([Version(1, 1, 9, b"a")]), "versions")
    bad("two current versions", github([Version(1, 1, 0, b"a"), Version(2, 1, 0, b"b")]), "versions")
    bad("a value of no bytes", github([Version(1, 1, 0, b"")]), "length")
    bad("a value beyond the limit", github([one(length=65537)]), "length")
    bad("a scope that is none", github([one()], header_scope="file:etc"), "reference")
    bad("a name that climbs", github([one()], header_name="../x"), "reference")
    bad("a name that is no text", github([one()], header_name="x").replace(b"\0\1x", b"\0\1\xff"), "reference")
    bad("of another secret", github([one()]), "other_secret", "vault://global/gitlab")
    bad("of another scope", github([one()]), "other_secret", "vault://channel:cli/github")
    bad("sealed for another vault", github([one()], seal_vault=OTHER_VAULT), "header_seal")
    bad("under an unknown key", blob(VAULT, other_kek, "global", "github", [one()]), "unknown_key")
    bad("another key's id", github([one()], kek_id=other_kek.id), "unknown_key")
    bad("another time", flipped(plain, 28 + 2 + 6 + 2 + 6 + 1 + 8 + 7), "header_seal")
    bad("a flipped seal", flipped(plain, header + 30), "header_seal")
    bad("a flipped wrapped key", flipped(plain, 28 + 17 + 24 + 24 + 5), "header_seal")
    bad("a flipped value", flipped(plain, len(plain) - 17), "value")
    bad("a flipped tag", flipped(plain, len(plain) - 1), "value")
    bad("a data key of another secret", github([one(key_name="gitlab")]), "data_key")
    bad("a data key of another scope", github([one(key_scope="channel:cli")]), "data_key")
    bad("a data key of another version", github([one(key_number=2)]), "data_key")
    bad("a value of another secret", github([one(value_name="gitlab")]), "value")
    bad("a value of another time", github([one(value_created=1)]), "value")
    bad("bodies that were exchanged", github(two(), bodies=lambda b: b[::-1]), "value")
    return {"vault": VAULT, "kek_id": kek.id.hex(), "kek": kek.key.hex(), "cases": cases}


COST = {"lanes": 1, "memory_kib": 8192, "passes": 1}
PASSPHRASE = b"correct horse battery staple"


def stretch(salt, cost=COST):
    return hash_secret_raw(
        PASSPHRASE, salt, cost["passes"], cost["memory_kib"], cost["lanes"], 32, Type.ID, version=0x13
    )


def slot(vault, kek, number, lock, secret, salt, **odd):
    nonce = rand(24)
    data = fields(
        "palyra.vault.slot.v1",
        vault.encode(),
        kek.id,
        struct.pack(">I", odd.get("bound_slot", number)),
        canonical(odd.get("bound_lock", lock)).encode(),
    )
    return {
        "created_at": 1700000000000,
        "label": f"slot {number}",
        "lock": lock,
        "nonce": nonce.hex(),
        "salt": salt.hex(),
        "slot": number,
        "wrapped": seal(hkdf(secret, salt, "palyra.vault.slot.v1"), nonce, data, kek.key).hex(),
    }


def vaults():
    kek, old_kek = Kek(VAULT), Kek(VAULT)
    file_secret, file_salt, pass_salt = rand(32), rand(32), rand(32)
    key_file = f"palyra-vault-key-1:{file_secret.hex()}\n"
    words = {"kind": "passphrase", **COST}
    slots = [
        slot(VAULT, kek, 0, {"kind": "key_file"}, file_secret, file_salt),
        slot(VAULT, kek, 2, words, stretch(pass_salt), pass_salt),
    ]
    binding = {
        "created_at": 1700000000000,
        "header": "Authorization: Bearer {}",
        "hosts": ["api.example.com", "http://localhost:8080"],
        "id": "bind_01K0000000000000000000000C",
        "methods": ["GET"],
        "path": "/repos/*",
        "program": {"name": "git", "sha256": hashlib.sha256(b"git").hexdigest()},
        "secret": "vault://global/github",
    }
    header = {
        "backend": "files",
        "bindings": [binding],
        "created_at": 1700000000000,
        "format": "palyra-vault-1",
        "kek": kek.id.hex(),
        "migration": None,
        "next_slot": 3,
        "retired": None,
        "revision": 7,
        "slots": slots,
        "vault": VAULT,
    }

    def sealed(head):
        nonce = rand(24)
        tag = seal(kek.vault_sealing, nonce, fields("palyra.vault.header.v1", canonical(head).encode()))
        return {"header": head, "seal": {"nonce": nonce.hex(), "tag": tag.hex()}}

    def written(head):
        return canonical(sealed(head)) + "\n"

    nonce = rand(24)
    retired_data = fields("palyra.vault.retired-key.v1", VAULT.encode(), kek.id, old_kek.id)
    retired = {
        "id": old_kek.id.hex(),
        "nonce": nonce.hex(),
        "wrapped": seal(kek.retired, nonce, retired_data, old_kek.key).hex(),
    }
    secrets = {}
    for key, under in (("github", kek), ("gitlab", old_kek)):
        data = blob(VAULT, under, "global", key, [Version(1, 1700000000000, 0, f"value of {key}".encode())])
        blob_id = hashlib.sha256(fields("palyra.vault.blob.v1", b"global", key.encode())).hexdigest()
        secrets[key] = (blob_id, data.hex())
    good = written(header)
    in_rekey = written({**header, "retired": retired})

    def files(*keys):
        return {secrets[key][0]: secrets[key][1] for key in keys}

    def opens(*keys):
        return {f"vault://global/{key}": f"value of {key}" for key in keys}

    cases = [
        {"name": "as it is written", "header": good, "blobs": files("github"), "secrets": opens("github")},
        {
            "name": "in the middle of a rekey",
            "header": in_rekey,
            "blobs": files("github", "gitlab"),
            "secrets": opens("github", "gitlab"),
        },
    ]

    def bad(name, text, code):
        cases.append({"name": name, "header": text, "blobs": {}, "code": code})

    def changed(**changes):
        return written({**header, **changes})

    def with_slot(record):
        return changed(slots=[record])

    no_change = sealed(header)
    bad("empty", "", "vault_damaged")
    bad("without its line end", good[:-1], "vault_damaged")
    bad("with blanks", good.replace('"revision":7', '"revision": 7'), "vault_damaged")
    bad("not JSON", good[:-10] + "\n", "vault_damaged")
    bad("a key twice", good.replace('"revision":7', '"revision":7,"revision":7'), "vault_damaged")
    bad("another order", json.dumps(no_change, separators=(",", ":")) .replace('{"header":', '{ "header":') + "\n", "vault_damaged")
    bad("another format", changed(format="palyra-vault-2"), "vault_format")
    bad("an unknown field", changed(more=1), "vault_damaged")
    bad("an unknown backend", changed(backend="memory"), "vault_damaged")
    bad("a missing field", canonical({"header": header}) + "\n", "vault_damaged")
    bad("digits in upper case", good.replace(kek.id.hex(), kek.id.hex().upper()), "vault_damaged")
    bad("a revision that is not exact", changed(revision=2**53), "vault_damaged")
    bad("another revision", good.replace('"revision":7', '"revision":8'), "vault_damaged")
    bad("another backend", good.replace('"backend":"files"', '"backend":"keychain"'), "vault_damaged")
    bad("another host", good.replace("api.example.com", "api.example.org"), "vault_damaged")
    bad("without bindings", good.replace(canonical([binding]), "[]"), "vault_damaged")
    bad("a flipped seal", canonical({**no_change, "seal": {**no_change["seal"], "tag": "00" * 16}}) + "\n", "vault_damaged")
    bad("no slots", changed(slots=[]), "vault_damaged")
    bad("slots out of order", changed(slots=slots[::-1]), "vault_damaged")
    bad("a slot beyond the next", changed(next_slot=2), "vault_damaged")
    bad("a wildcard host", changed(bindings=[{**binding, "hosts": ["*.example.com"]}]), "vault_damaged")
    bad("a header that frames", changed(bindings=[{**binding, "header": "Content-Length: {}"}]), "vault_damaged")
    bad("a path that climbs", changed(bindings=[{**binding, "path": "/a/../b"}]), "vault_damaged")
    bad("a key of another file", with_slot(slot(VAULT, kek, 0, {"kind": "key_file"}, rand(32), rand(32))), "vault_unlock_failed")
    bad(
        "a slot of another number",
        with_slot(slot(VAULT, kek, 0, {"kind": "key_file"}, file_secret, rand(32), bound_slot=1)),
        "vault_unlock_failed",
    )
    bad(
        "a slot of another vault",
        with_slot(slot(OTHER_VAULT, kek, 0, {"kind": "key_file"}, file_secret, rand(32))),
        "vault_unlock_failed",
    )
    cheap = {"kind": "passphrase", **COST, "memory_kib": 64}
    bad("a passphrase that costs nothing", with_slot(slot(VAULT, kek, 0, cheap, stretch(pass_salt, {**COST, "memory_kib": 64}), pass_salt)), "vault_unlock_failed")
    dear = {"kind": "passphrase", **COST, "memory_kib": 2**31}
    bad("a passphrase that costs everything", with_slot(slot(VAULT, kek, 0, dear, rand(32), pass_salt)), "vault_unlock_failed")
    bad(
        "a passphrase whose cost was changed",
        with_slot(slot(VAULT, kek, 0, {**words, "passes": 2}, stretch(pass_salt), pass_salt, bound_lock=words)),
        "vault_unlock_failed",
    )
    bad("a slot of no known kind", with_slot({**slots[0], "lock": {"kind": "hope"}}), "vault_damaged")
    bad("a command that is not configured", with_slot({**slots[0], "lock": {"handle": "aA==", "kind": "command", "name": "kms"}}), "vault_unlock_failed")
    bad("a flipped key before this one", changed(retired={**retired, "wrapped": "00" * 48}), "vault_damaged")
    return {"key_file": key_file, "passphrase": PASSPHRASE.decode(), "cases": cases}


def exports():
    def export(frames, **odd):
        salt, prefix = rand(32), rand(16)
        header = {
            "cost": odd.get("cost", COST),
            "created_at": 1700000000000,
            "format": odd.get("format", "palyra-vault-export-1"),
            "nonce": prefix.hex(),
            "salt": salt.hex(),
            "vault": VAULT,
        }
        text = odd.get("text", canonical)(header)
        key = hkdf(stretch(salt), salt, "palyra.vault.export.v1")
        out = []
        for index, frame in enumerate(frames):
            data = fields("palyra.vault.export-frame.v1", text.encode(), u64(index))
            body = seal(key, prefix + u64(index), data, frame)
            out.append(struct.pack(">I", len(body)) + body)
        out = odd.get("order", lambda o: o)(out)
        return odd.get("magic", b"PLYREXP1") + struct.pack(">I", len(text)) + text.encode() + b"".join(out)

    def secret(scope, name, number, expires, value):
        return b"\1" + text16(scope) + text16(name) + u64(number) + u64(1700000000000) + u64(expires) + value

    def bind(**changes):
        binding = {
            "header": "Authorization: Bearer {}",
            "hosts": ["api.example.com"],
            "methods": [],
            "path": None,
            "program": None,
            "secret": "vault://global/github",
            **changes,
        }
        return b"\2" + canonical(binding).encode()

    def end(count):
        return b"\3" + u64(count)

    far = 4000000000000
    frames = [
        secret("global", "github", 1, far, b"old"),
        secret("global", "github", 2, 0, b"new"),
        secret("skill:acme.weather", "key", 5, 0, b"\xff\0\xfe"),
        bind(),
    ]
    whole = export([*frames, end(4)])
    cases = [
        {
            "name": "two secrets and a binding",
            "file": whole.hex(),
            "secrets": {"vault://global/github": b"new".hex(), "vault://skill:acme.weather/key": b"\xff\0\xfe".hex()},
            "bindings": 1,
        },
        {"name": "nothing", "file": export([end(0)]).hex(), "secrets": {}, "bindings": 0},
    ]

    def bad(name, data, code, passphrase=PASSPHRASE.decode()):
        cases.append({"name": name, "file": data.hex(), "code": code, "passphrase": passphrase})

    first = 12 + struct.unpack(">I", whole[8:12])[0]
    bad("empty", b"", "vault_damaged")
    bad("another file", b"PK\3\4" * 100, "vault_format")
    bad("a wrong passphrase", whole, "export_passphrase", "wrong")
    bad("header alone", whole[:first], "vault_damaged")
    bad("a flipped header", flipped(whole, 12 + whole[12:].index(b"700000000000")), "export_passphrase")
    bad("a header with blanks", export([end(0)], text=lambda h: json.dumps(h, sort_keys=True)), "vault_damaged")
    bad("another format", export([end(0)], format="palyra-vault-export-2"), "vault_format")
    bad("a cost of nothing", export([end(0)], cost={**COST, "memory_kib": 8}), "vault_damaged")
    bad("a flipped first frame", flipped(whole, first + 9), "export_passphrase")
    bad("a flipped last frame", flipped(whole, len(whole) - 1), "vault_damaged")
    bad("a length of nothing", whole[:first] + bytes(4) + whole[first + 4 :], "vault_damaged")
    bad("a length beyond the limit", whole[:first] + b"\xff" * 4 + whole[first + 4 :], "vault_damaged")
    bad("without its end", export(frames), "vault_damaged")
    bad("an end that counts wrong", export([*frames, end(3)]), "vault_damaged")
    bad("a byte after its end", whole + b"\0", "vault_damaged")
    bad("frames that were exchanged", export([*frames, end(4)], order=lambda o: [o[0], o[2], o[1], *o[3:]]), "vault_damaged")
    bad("a frame left out", export([*frames, end(4)], order=lambda o: [o[0], *o[2:]]), "vault_damaged")
    bad("a frame of no known kind", export([b"\x09hello", end(1)]), "vault_damaged")
    bad("an empty value", export([secret("global", "a", 1, 0, b""), end(1)]), "secret_empty")
    bad("a name that climbs", export([secret("global", "../a", 1, 0, b"x"), end(1)]), "vault_damaged")
    bad("versions that descend", export([secret("global", "a", 2, far, b"x"), secret("global", "a", 1, 0, b"y"), end(2)]), "vault_damaged")
    bad(
        "a secret twice",
        export([secret("global", n, 1, 0, b"x") for n in ("a", "b", "a")] + [end(3)]),
        "vault_damaged",
    )
    bad("a binding to everything", export([bind(hosts=["*"]), end(1)]), "vault_damaged")
    bad("a binding to nothing", export([bind(hosts=[]), end(1)]), "binding_host")
    return {"passphrase": PASSPHRASE.decode(), "cases": cases}


for name, make in (("blobs", blobs), ("vaults", vaults), ("exports", exports)):
    (HERE / f"{name}.json").write_text(json.dumps(make(), indent=1, ensure_ascii=False) + "\n")

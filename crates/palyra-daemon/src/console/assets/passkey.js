// Passkeys: an authenticator that verifies its user confirms one digest, which is its challenge.

import { digest, hex, utf8 } from "./digest.js";
import { json, post } from "./session.js";

const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

async function asserted(challenge, ids) {
  const allowCredentials = ids.map((id) => ({ type: "public-key", id: bytes(id) }));
  const got = await navigator.credentials.get({ publicKey: { challenge, allowCredentials, userVerification: "required", timeout: 120_000 } });
  const { authenticatorData, clientDataJSON, signature } = got.response;
  return { passkey: text(got.rawId), authenticator_data: text(authenticatorData), client_data: text(clientDataJSON), signature: text(signature) };
}

/** Has one of the person's passkeys confirm a digest. */
export async function confirm(challenge) {
  const { passkeys } = await json("/console/api/passkeys");
  if (!passkeys.length) throw new Error("A rule wants this confirmed with a passkey, and you have none: the page Access adds one.");
  return asserted(challenge, passkeys);
}

/** Adds a passkey: made here, confirmed by itself, and by another one where there is one. */
export async function add() {
  const { passkeys, principal } = await json("/console/api/passkeys");
  const made = await navigator.credentials.create({ publicKey: {
    challenge: crypto.getRandomValues(new Uint8Array(32)), rp: { id: location.hostname, name: "Palyra" },
    user: { id: utf8(principal).slice(0, 64), name: principal, displayName: principal },
    pubKeyCredParams: [{ type: "public-key", alg: -7 }], attestation: "none", timeout: 120_000,
    authenticatorSelection: { userVerification: "required", residentKey: "preferred" },
    excludeCredentials: passkeys.map((id) => ({ type: "public-key", id: bytes(id) })),
  } });
  // The point is what a P-256 key ends with.
  const point = new Uint8Array(made.response.getPublicKey()).slice(-65);
  const [id, key] = [text(made.rawId), `p256:${hex(point)}`];
  const introduced = await digest("palyra.passkey.v1", principal, id, key);
  const proof = await asserted(introduced, [id]);
  const by = passkeys.length ? await asserted(introduced, passkeys) : undefined;
  await post("/console/api/passkeys", { id, key, label: `passkey of ${new Date().toISOString().slice(0, 10)}`, proof, by });
}

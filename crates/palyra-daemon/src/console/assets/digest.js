// Digests as the daemon makes them: SHA-256 over a domain and fields, each preceded by its length as eight bytes.

const encoder = new TextEncoder();

export const utf8 = (text) => encoder.encode(text);
export const hex = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
export const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

/** A number as eight big-endian bytes. */
export function number(value) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value));
  return bytes;
}

/** The digest of a domain and fields; texts are taken as UTF-8. */
export function digest(domain, ...fields) {
  const parts = [domain, ...fields].map((field) => (typeof field === "string" ? utf8(field) : field));
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + 8 + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(number(part.length), at);
    bytes.set(part, at + 8);
    at += 8 + part.length;
  }
  return sha256(bytes);
}

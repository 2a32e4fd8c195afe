//! Our own interfaces: `palyra:skill/log`, `http`, `secrets` and `storage`.
//!
//! The last three are linked only for a grant that names them. Each call asks the grant again: linking opens an
//! interface, the grant says which hosts, secrets and how much.

mod http;
mod log;
mod secrets;
mod storage;

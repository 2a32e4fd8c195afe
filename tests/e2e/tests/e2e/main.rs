//! The one path, end to end, against `palyra` and `palyrad` as they are built.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod access;
mod approvals;
mod attest;
mod authz;
mod budget;
mod commands;
mod connect;
mod contained;
mod custody;
mod disk;
mod display;
mod effects;
mod fetch;
mod files;
mod grants;
mod hands;
mod http;
mod http_faults;
mod idempotency;
mod input;
mod journal;
mod live;
mod mcp;
mod mcp_http;
mod offline;
mod policy;
mod policy_tools;
mod process;
mod reload;
mod remote;
mod remote_clients;
mod restart;
mod reviews;
mod sandbox;
mod schemas;
mod skills;
mod state;
mod terminal;
mod tui;
mod vault;
mod vault_use;

//! A call by a paired device over mutual TLS beside the same over the UNIX socket, in turns; connections that do
//! nothing.

use crate::Result;
use crate::process::{Daemon, binaries, owner};
use crate::report::{Report, percentile};
use palyra_api::v1::{CreateCodeRequest, DecideRequest, OwnDeviceRequest, StatusRequest, WatchApprovalsRequest};
use palyra_api::{Connection, RemoteHost};
use palyra_identity::DeviceCredentials;
use palyra_identity::pairing::{
    DeviceIntroduction, MatchingWords, Paired, PairingCode, PairingError, PairingProgress, pair,
};
use palyra_protocol::{ApprovalRecord, ApprovalState, SystemClock};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many devices share the idle connections: each may have so many and no more.
const DEVICES: usize = 16;
const IDLE: usize = 1000;

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    let daemon = Daemon::start(&binaries()?, dir.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let socket = runtime.block_on(owner(dir.path()))?;
    let mut hosts = Vec::new();
    for number in 0..DEVICES {
        hosts.push(runtime.block_on(paired(&socket, number))?);
    }
    let remote = runtime.block_on(Connection::open_remote(&hosts[0], None))?;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    // In turns, so that noise falls on both.
    for _ in 0..20 {
        raw.extend(runtime.block_on(calls(&socket, 50))?);
        ours.extend(runtime.block_on(calls(&remote, 50))?);
    }
    for percent in [50, 99] {
        let what = format!("a warm gRPC call over mTLS against the socket, p{percent}");
        report.at_most(&what, percentile(&mut ours, percent), percentile(&mut raw, percent), 1.5);
    }
    let before = daemon.resident_bytes()?;
    let idle = runtime.block_on(async {
        let mut idle = Vec::new();
        for number in 0..IDLE {
            let connection = Connection::open_remote(&hosts[number % DEVICES], None).await?;
            connection.devices().own(OwnDeviceRequest {}).await?;
            idle.push(connection);
        }
        Result::Ok(idle)
    })?;
    let each = daemon.resident_bytes()?.saturating_sub(before) as f64 / IDLE as f64;
    report.figure("1,000 idle connections of devices, memory each", &format!("{:.1} KB", each / 1e3));
    drop(idle);
    Ok(())
}

async fn calls(connection: &Connection, count: usize) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    let mut daemon = connection.daemon();
    for _ in 0..count {
        let began = Instant::now();
        daemon.status(StatusRequest { probe_sandbox: false }).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

struct Silent;

impl PairingProgress for Silent {
    fn show(&mut self, _words: MatchingWords) {}

    fn store(&mut self, _paired: &Paired) -> std::result::Result<(), PairingError> {
        Ok(())
    }
}

/// Pairs a device as two people would: one makes a code and approves, the other types it.
async fn paired(socket: &Connection, number: usize) -> Result<RemoteHost> {
    let mut news = socket.approvals().watch(WatchApprovalsRequest {}).await?.into_inner();
    let reply = socket.devices().create_code(CreateCodeRequest::default()).await?.into_inner();
    let address = reply.addresses.first().ok_or("the remote door is closed")?.clone();
    let (host, port) = address.rsplit_once(':').ok_or("an address without a port")?;
    let pairing = (host.to_owned(), port.parse::<u16>()? + 1);
    let code: PairingCode = reply.code.parse()?;
    let introduction = DeviceIntroduction { name: format!("bench {number}").parse()?, platform: "bench".parse()? };
    let device = tokio::task::spawn_blocking(move || -> std::result::Result<Paired, PairingError> {
        let mut stream = TcpStream::connect(pairing)?;
        pair(&mut stream, &code, introduction, Arc::new(SystemClock), &mut Silent)
    });
    while let Some(approval) = news.message().await? {
        let asked: ApprovalRecord = serde_json::from_str(&approval.approval_json)?;
        if asked.state == ApprovalState::Pending {
            let approval_id = asked.approval_id.to_string();
            socket.approvals().decide(DecideRequest { approval_id, allow: true, ..DecideRequest::default() }).await?;
            break;
        }
    }
    let paired = device.await??;
    let credentials = DeviceCredentials::new(paired.zone, &paired.certificate, &paired.key, &paired.authorities)?;
    Ok(RemoteHost { address, credentials })
}

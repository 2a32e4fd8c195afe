//! The vault: get and put beside the raw work that they are made of, both as the vault grows, and redaction beside
//! copying.

use crate::report::{Report, alternate, show};
use crate::{Result, egress};
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut as _, KeyInit as _, XChaCha20Poly1305, XNonce};
use palyra_protocol::SecretRef;
use palyra_vault::{
    BackendChoice, BlobId, Mask, NewSlot, PutOptions, RedactionStream, Redactor, SecretValue, StreamEnd, Surroundings,
    Vault,
};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const FEW: usize = 10;
const MANY: usize = 100_000;
/// The length of a value.
const VALUE: usize = 1024;
/// What an envelope adds to one.
const OVERHEAD: usize = 240;
/// How many different secrets are asked for.
const NAMES: usize = 200;
const GETS: usize = 10_001;
const PUTS: usize = 301;
const VALUES: usize = 1000;
const TEXT: usize = 32 << 20;
const CHUNK: usize = 64 << 10;
const PROMISED_MB: f64 = 500.0;

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    let few = filled(&dir.path().join("few"), FEW)?;
    let many = filled(&dir.path().join("many"), MANY)?;
    get(report, dir.path(), &few, &many)?;
    put(report, dir.path(), &few, &many)?;
    list(report, &dir.path().join("many"), &many)?;
    redaction(report)?;
    egress::attached_credential(report)
}

/// A vault with so many secrets.
fn filled(path: &Path, count: usize) -> Result<Vault> {
    let slot = ("key file".to_owned(), NewSlot::KeyFile(path.join("key")));
    let vault = Vault::create(path, BackendChoice::Default, vec![slot], Surroundings::default())?;
    let secrets: Result<Vec<_>> = (0..count).map(|n| Ok((name(n)?, value(n)?))).collect();
    vault.put_all(&secrets?, PutOptions::default())?;
    Ok(vault)
}

fn name(n: usize) -> Result<SecretRef> {
    Ok(format!("vault://principal:agent:bench/service/key-{n}").parse()?)
}

fn value(n: usize) -> Result<SecretValue> {
    Ok(SecretValue::new(format!("{n:>VALUE$}").into_bytes())?)
}

/// Names spread over a vault of so many, one after the other.
fn spread(count: usize, samples: usize) -> Result<Vec<SecretRef>> {
    (0..samples).map(|n| name(n * 7919 % count)).collect()
}

/// Goes through a list again and again.
fn round_robin<'a, T>(items: &'a [T], mut work: impl FnMut(&T) -> Result + 'a) -> impl FnMut() + 'a {
    let mut turns = items.iter().cycle();
    move || {
        if let Some(Err(error)) = turns.next().map(&mut work) {
            println!("  failed: {error}");
        }
    }
}

/// One call at a time: the median of many is not moved by other programs on the machine.
fn get(report: &mut Report, dir: &Path, few: &Vault, many: &Vault) -> Result {
    let (in_few, in_many) = (spread(FEW, NAMES)?, spread(MANY, NAMES)?);
    let raw = RawGet::new()?;
    let files: Vec<PathBuf> = in_many.iter().map(|name| file(&dir.join("many"), name)).collect();
    let open = |vault: &Vault, name: &SecretRef| -> Result {
        black_box(vault.get(name)?);
        Ok(())
    };
    let (ours, limit) =
        alternate(GETS, round_robin(&in_many, |name| open(many, name)), round_robin(&files, |file| raw.run(file)));
    report.at_most("get, over one AEAD open and one file read", ours, limit, 3.0);
    let (large, small) =
        alternate(GETS, round_robin(&in_many, |name| open(many, name)), round_robin(&in_few, |name| open(few, name)));
    report.at_most("get of 100,000, over of 10", large, small, 1.2);
    Ok(())
}

/// The file of a secret's blob.
fn file(vault: &Path, name: &SecretRef) -> PathBuf {
    let id = BlobId::of(name).to_string();
    vault.join("blobs").join(&id[..2]).join(&id[2..])
}

/// A ciphertext of a value's size.
struct RawGet {
    cipher: XChaCha20Poly1305,
    sealed: Vec<u8>,
    tag: [u8; 16],
}

impl RawGet {
    fn new() -> Result<Self> {
        let cipher = XChaCha20Poly1305::new(&[7; 32].into());
        let mut sealed = vec![7; VALUE];
        let tag = cipher
            .encrypt_inout_detached(&XNonce::from([7; 24]), b"aad", InOutBuf::from(&mut sealed[..]))
            .map_err(|_| "sealing failed")?;
        Ok(Self { cipher, sealed, tag: tag.into() })
    }

    /// Reads a file and opens the ciphertext.
    fn run(&self, file: &Path) -> Result {
        black_box(std::fs::read(file)?);
        let mut value = self.sealed.clone();
        self.cipher
            .decrypt_inout_detached(&XNonce::from([7; 24]), b"aad", InOutBuf::from(&mut value[..]), &self.tag.into())
            .map_err(|_| "opening failed")?;
        black_box(value);
        Ok(())
    }
}

fn put(report: &mut Report, dir: &Path, few: &Vault, many: &Vault) -> Result {
    let place = dir.join("replaced");
    std::fs::create_dir(&place)?;
    let new = value(1)?;
    let replace = || -> Result {
        let (temporary, target) = (place.join("new"), place.join("file"));
        let mut file = File::create(&temporary)?;
        file.write_all(&[7; VALUE + OVERHEAD])?;
        file.sync_all()?;
        std::fs::rename(temporary, target)?;
        Ok(File::open(&place)?.sync_all()?)
    };
    let store = |vault: &Vault, name: &SecretRef| -> Result {
        vault.put(name, &new, PutOptions::default())?;
        Ok(())
    };
    let (in_few, in_many) = (spread(FEW, NAMES)?, spread(MANY, NAMES)?);
    let (ours, limit) =
        alternate(PUTS, round_robin(&in_many, |name| store(many, name)), round_robin(&[()], |()| replace()));
    report.at_most("put, over one durable replacement", ours, limit, 1.5);
    let (large, small) =
        alternate(PUTS, round_robin(&in_many, |name| store(many, name)), round_robin(&in_few, |name| store(few, name)));
    report.at_most("put of 100,000, over of 10", large, small, 1.2);
    Ok(())
}

fn list(report: &mut Report, dir: &Path, many: &Vault) -> Result {
    let files: Result<Vec<PathBuf>> = (0..MANY).map(|n| Ok(file(dir, &name(n)?))).collect();
    let files = files?;
    let mut beginning = [0; 1024];
    let mut read_all = || {
        for path in &files {
            let read = File::open(path).and_then(|mut file| std::io::Read::read(&mut file, &mut beginning));
            black_box(read.is_ok());
        }
    };
    let (mut ours, mut raw) = (Duration::MAX, Duration::MAX);
    for _ in 0..3 {
        ours = ours.min(timed(|| drop(black_box(many.list(None)))));
        raw = raw.min(timed(&mut read_all));
    }
    let ratio = ours.as_secs_f64() / raw.as_secs_f64();
    let figures = format!("{} / {} = {ratio:.2}×, time of the processor", show(ours), show(raw));
    report.figure("list of 100,000, over reading their headers", &figures);
    // Without their values, secrets cannot be opened and are listed all the same.
    for path in files.iter().step_by(100) {
        let whole = std::fs::metadata(path)?.len();
        File::options().write(true).open(path)?.set_len(whole - VALUE as u64 - 16)?;
    }
    let (listed, opened) = (many.list(None)?.secrets.len(), many.get(&name(0)?).is_ok());
    let figures = format!("{listed} listed after the values of {} were cut off", MANY / 100);
    report.promise("list of 100,000 decrypts nothing", &figures, listed == MANY && !opened);
    Ok(())
}

fn redaction(report: &mut Report) -> Result {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut builder = Redactor::builder();
    for n in 0..VALUES {
        let token: String = (0..40).map(|_| random.letter()).collect();
        builder.add(&name(n)?, &SecretValue::new(token.into_bytes())?);
    }
    let started = cpu();
    let redactor = Arc::new(builder.build()?);
    report.figure("a redactor for 1,000 values is built in", &show(cpu().saturating_sub(started)));
    let texts =
        [("log lines", log_lines(&mut random)), ("Base64", base64(&mut random)), ("any bytes", any(&mut random))];
    for (what, text) in texts {
        let (mut ours, mut copying) = (Duration::MAX, Duration::MAX);
        for _ in 0..3 {
            ours = ours.min(timed(|| pass(&redactor, &text)));
            copying = copying.min(timed(|| copy(&text)));
        }
        let rate = |time: Duration| TEXT as f64 / 1e6 / time.as_secs_f64();
        let (ours, raw) = (rate(ours), rate(copying));
        let figures = format!("{ours:.0} MB/s a core; copying {raw:.0} MB/s (promised ≥ {PROMISED_MB} MB/s)");
        report.promise(&format!("redaction of {what}, 1,000 values"), &figures, ours >= PROMISED_MB);
    }
    Ok(())
}

/// What the processor spent on this thread: other programs on the machine do not count.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = cpu();
    work();
    cpu().saturating_sub(started)
}

fn pass(redactor: &Arc<Redactor>, text: &[u8]) {
    let mut stream = RedactionStream::new(Arc::clone(redactor), Mask::Marker);
    let mut out = Vec::with_capacity(CHUNK * 2);
    for chunk in text.chunks(CHUNK) {
        out.clear();
        stream.push(chunk, &mut out);
        black_box(&out);
    }
    stream.finish(StreamEnd::Whole, &mut out);
}

fn copy(text: &[u8]) {
    let mut out = Vec::with_capacity(CHUNK * 2);
    for chunk in text.chunks(CHUNK) {
        out.clear();
        out.extend_from_slice(chunk);
        black_box(&out);
    }
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn letter(&mut self) -> char {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        char::from(LETTERS[(self.next() >> 20) as usize % 64])
    }
}

fn log_lines(random: &mut Random) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "GET",
        "/api/v1/items",
        "200",
        "2026-01-01T00:00:00.000Z",
        "error:",
        "connection refused",
        "127.0.0.1:8443",
        "level=debug",
        "user=alice",
        "{\"id\":42,\"name\":\"widget\"}",
        "compiling palyra-vault",
        "0x7ffd3a2b1c00",
        "deadbeefcafe0123456789",
        "Authorization: Bearer",
        "YWJjZGVmZ2hpamtsbW5vcA==",
        "\n",
    ];
    let mut text = Vec::with_capacity(TEXT + 64);
    while text.len() < TEXT {
        text.extend_from_slice(WORDS[(random.next() >> 20) as usize % WORDS.len()].as_bytes());
        text.push(b' ');
    }
    text.truncate(TEXT);
    text
}

fn base64(random: &mut Random) -> Vec<u8> {
    (0..TEXT).map(|_| random.letter() as u8).collect()
}

fn any(random: &mut Random) -> Vec<u8> {
    (0..TEXT).map(|_| (random.next() >> 20) as u8).collect()
}

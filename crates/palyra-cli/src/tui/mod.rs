//! `palyra tui`: the same approvals, calls, grants and runs on a full screen.
//!
//! One loop waits for keys, for news of the daemon and for moments; [`app`] holds what is known and what keys do,
//! [`draw`] puts it on the screen, [`feed`] brings the news. Nothing is polled: an idle screen costs nothing. The
//! terminal is given back as it was, also when the program panics.

mod app;
mod backend;
mod draw;
mod draw_run;
mod feed;
mod opened;

use crate::answering::{Keys, at_terminal};
use crate::args::{Tui, Watch};
use crate::context::Context;
use crate::exit::Failure;
use app::{App, Wish};
use backend::AnsiBackend;
use feed::Feed;
use ratatui::Terminal;
use std::fs::File;
use std::io::Write as _;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep_until;

pub async fn run(context: &Context, options: &Tui) -> Result<(), Failure> {
    if context.json() {
        return Err(Failure::usage("a screen is not printed as JSON", "see `palyra approvals watch --output json`"));
    }
    if options.reader {
        let watch = Watch { bell: false, notify: false, reader: true, plain: false };
        return crate::commands::approvals::watch(context, &watch).await;
    }
    if !at_terminal(std::io::stdout()) {
        return Err(Failure::usage("there is no terminal", "see `palyra approvals watch`"));
    }
    // Refused before the screen is taken: the message would be lost on it.
    drop(context.connect().await?);
    let mut screen = FullScreen::enter()?;
    let mut keys = Keys::take()?;
    let outcome = work(context, &mut screen, &mut keys).await;
    drop(screen);
    outcome
}

async fn work(context: &Context, screen: &mut FullScreen, keys: &mut Keys) -> Result<(), Failure> {
    let heard = |kind| signal(kind).map_err(|e| Failure::io("signals cannot be heard", &e));
    let mut resized = heard(SignalKind::window_change())?;
    let (mut interrupted, mut ended) = (heard(SignalKind::interrupt())?, heard(SignalKind::terminate())?);
    let mut feed = Feed::start(context.clone());
    let mut app = App::new();
    loop {
        screen.terminal.draw(|frame| draw::draw(frame, &mut app)).map_err(|e| Failure::io("the screen", &e))?;
        if app.drawn() {
            // What was typed while another thing was on screen does not count.
            keys.forget();
        }
        let moment = app.moment();
        let at = moment.unwrap_or_else(Instant::now);
        let wishes = tokio::select! {
            biased;
            news = feed.next() => vec![app.news(news)],
            _ = interrupted.recv() => vec![Wish::Quit],
            _ = ended.recv() => vec![Wish::Quit],
            _ = resized.recv() => vec![app.resized()],
            typed = keys.next() => match typed {
                Some(typed) => app.typed(&typed),
                None => vec![Wish::Quit],
            },
            () = sleep_until(at.into()), if moment.is_some() => vec![app.time()],
        };
        for wish in wishes {
            match wish {
                Wish::Nothing => {}
                Wish::Quit => {
                    // An armed yes is not sent; that it was taken back is recorded.
                    if let Some(review) = app.armed_review() {
                        feed.take_back(review).await;
                    }
                    return Ok(());
                }
                wish => feed.wish(wish),
            }
        }
    }
}

/// The terminal as a full screen. Dropping it gives the terminal back.
struct FullScreen {
    terminal: Terminal<AnsiBackend>,
}

impl FullScreen {
    fn enter() -> Result<Self, Failure> {
        let io = |e: std::io::Error| Failure::io("the terminal cannot be used", &e);
        let mut tty = File::options().read(true).write(true).open("/dev/tty").map_err(io)?;
        tty.write_all(backend::ENTER.as_bytes()).map_err(io)?;
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        let terminal = Terminal::new(AnsiBackend::new(tty)).map_err(io)?;
        Ok(Self { terminal })
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        leave();
    }
}

/// Leaves the full screen; where that fails there is no terminal left.
fn leave() {
    if let Ok(mut tty) = File::options().write(true).open("/dev/tty") {
        drop(tty.write_all(backend::LEAVE.as_bytes()));
    }
}

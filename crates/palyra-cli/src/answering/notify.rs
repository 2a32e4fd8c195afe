//! Telling a person who looks elsewhere that something waits: a bell, or a notification of the desktop.
//!
//! Neither holds anything that a stranger wrote: a desktop shows what it is given.

use super::screen::Screen;

/// What to do when a new approval comes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Notify {
    pub bell: bool,
    pub desktop: bool,
}

impl Notify {
    /// Tells that so many approvals wait.
    pub fn tell(self, screen: &mut Screen, waiting: usize) {
        if self.bell {
            screen.raw("\x07");
        }
        if self.desktop {
            let text = format!("Palyra: {waiting} waiting for your answer");
            // Terminals that know the sequence notify; the others pass over it.
            screen.raw(&format!("\x1b]9;{text}\x1b\\"));
            let mut command = std::process::Command::new("notify-send");
            command.args(["--app-name=palyra", "Palyra"]).arg(format!("{waiting} waiting for your answer"));
            command
                .stdin(std::process::Stdio::null())
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            // Where there is no such program, the terminal's sequence is all there is.
            if let Ok(mut child) = command.spawn() {
                std::thread::spawn(move || drop(child.wait()));
            }
        }
    }
}

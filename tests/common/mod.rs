//! Runs one test of the current test binary in a child process.

#![allow(dead_code)] // each test binary uses a part

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct Child {
    /// `None`: timed out and killed.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the test named exactly `test` in a new process of this binary, with `env` on top of our own environment.
pub fn run_child(test: &str, env: &[(&str, &str)], timeout: Duration) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("our own executable"))
        .args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"])
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary starts");
    let stdout = read_all(child.stdout.take().expect("piped"));
    let stderr = read_all(child.stderr.take().expect("piped"));
    let deadline = Instant::now() + timeout;
    let status = loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            break Some(status);
        }
        if Instant::now() >= deadline {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Child {
        status,
        stdout: stdout.join().expect("the reader does not panic"),
        stderr: stderr.join().expect("the reader does not panic"),
    }
}

/// Reads on a thread of its own, so that a full pipe blocks nobody.
fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

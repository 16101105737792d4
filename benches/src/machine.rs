//! What the figures were taken on.

use std::fs;
use std::process::Command;

use crate::contestant::{jemalloc_version, mimalloc_version};

/// The CPU, the compiler and the allocators, a line each.
///
/// # Panics
/// mimalloc is not version 3: the feature `v2` of libmimalloc-sys is on.
pub fn describe() -> String {
    let mimalloc = mimalloc_version();
    assert_eq!(mimalloc / 10_000, 3, "mimalloc is not version 3");
    format!(
        "cpu: {}, {} available; caches L1d {} KiB, L2 {} KiB\nrustc: {}\nallotment: mode {}; mimalloc {}.{}.{}; jemalloc {}; system: {}",
        cpu(),
        std::thread::available_parallelism().map_or(0, usize::from),
        cache_bytes(1) >> 10,
        cache_bytes(2) >> 10,
        rustc().as_deref().unwrap_or("unknown"),
        allotment::stats().mode,
        mimalloc / 10_000,
        mimalloc / 100 % 100,
        mimalloc % 100,
        jemalloc_version(),
        libc_version().as_deref().unwrap_or("unknown"),
    )
}

/// How many processes wanted a CPU in the last minute: far more than ours are, and the figures are worth little.
pub fn load() -> String {
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    loads.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").to_owned()
}

fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown".into(), |(_, name)| name.to_owned())
}

fn first_line(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

fn rustc() -> Option<String> {
    first_line("rustc", "--version")
}

fn libc_version() -> Option<String> {
    first_line("getconf", "GNU_LIBC_VERSION")
}

/// The size of the first CPU's data cache of that level; if the system does not tell, a common one.
pub fn cache_bytes(level: u32) -> usize {
    let common = if level == 1 { 48 << 10 } else { 2 << 20 };
    let caches = (0..8).map(|index| format!("/sys/devices/system/cpu/cpu0/cache/index{index}"));
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    caches
        .filter(|cache| read(format!("{cache}/level")).trim() == level.to_string())
        .filter(|cache| read(format!("{cache}/type")).trim() != "Instruction")
        .find_map(|cache| read(format!("{cache}/size")).trim().strip_suffix('K')?.parse::<usize>().ok())
        .map_or(common, |kib| kib << 10)
}

//! Allocation-hungry code that nobody here wrote runs inside tenants with the results it has on the system allocator,
//! the accounts exact while it lives and zero when it is gone.
//!
//! Each test computes a digest here, on Allotment, and again in a child process of the same binary that runs on the
//! system allocator; both see one snapshot of the sources.

#![allow(missing_docs)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use allotment::{Allotment, InTenant, Tenant};
use rayon::prelude::*;
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Chosen by the first allocation, before `main`.
enum Chosen {
    Allotment,
    System,
}

static CHOICE: AtomicU8 = AtomicU8::new(0);
/// Set for children that run on the system allocator: the snapshot's file.
const SNAPSHOT: &str = "ALLOTMENT_TEST_ON_SYSTEM";

fn chosen() -> Chosen {
    // relaxed: every thread that finds 0 computes the same
    let mut choice = CHOICE.load(Ordering::Relaxed);
    if choice == 0 {
        // SAFETY: a static string that ends in a zero; nobody here changes the environment.
        let variable = unsafe { libc::getenv(c"ALLOTMENT_TEST_ON_SYSTEM".as_ptr()) };
        choice = if variable.is_null() { 1 } else { 2 };
        CHOICE.store(choice, Ordering::Relaxed);
    }
    if choice == 1 {
        Chosen::Allotment
    } else {
        Chosen::System
    }
}

struct ByEnvironment;

#[global_allocator]
static GLOBAL: ByEnvironment = ByEnvironment;

// SAFETY: the choice never changes, so each object goes back where it came from; both are allocators.
unsafe impl GlobalAlloc for ByEnvironment {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match chosen() {
            // SAFETY: the caller's promise.
            Chosen::Allotment => unsafe { Allotment.alloc(layout) },
            // SAFETY: the caller's promise.
            Chosen::System => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        match chosen() {
            // SAFETY: the caller's promise, and the choice never changes.
            Chosen::Allotment => unsafe { Allotment.dealloc(object, layout) },
            // SAFETY: the caller's promise, and the choice never changes.
            Chosen::System => unsafe { System.dealloc(object, layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match chosen() {
            // SAFETY: the caller's promise.
            Chosen::Allotment => unsafe { Allotment.alloc_zeroed(layout) },
            // SAFETY: the caller's promise.
            Chosen::System => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match chosen() {
            // SAFETY: the caller's promise, and the choice never changes.
            Chosen::Allotment => unsafe { Allotment.realloc(object, layout, size) },
            // SAFETY: the caller's promise, and the choice never changes.
            Chosen::System => unsafe { System.realloc(object, layout, size) },
        }
    }
}

/// FNV-1a.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Deterministic noise (splitmix64).
fn noise(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Paths and texts.
type Sources = Vec<(String, String)>;

fn read_sources() -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests", "examples"].into_iter().flat_map(|folder| walkdir::WalkDir::new(root.join(folder)));
    let files = folders.map(|entry| entry.expect("the sources are readable").into_path());
    let mut sources: Sources = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
            (path.strip_prefix(root).expect("found below it").to_string_lossy().into_owned(), text)
        })
        .collect();
    sources.sort();
    assert!(sources.iter().any(|(path, _)| path == "src/lib.rs") && sources.len() > 30, "{} sources", sources.len());
    sources
}

/// What a workload gets.
struct Stage<'a> {
    sources: &'a Sources,
    /// The first run is a small one, in root, for what libraries keep for ever.
    warm_up: bool,
    tenants: &'a [Tenant],
    /// To be called while all results are alive and no thread changes what the tenants have.
    live: &'a dyn Fn(),
}

impl Stage<'_> {
    fn size(&self, warm_up: usize, debug: usize, release: usize) -> usize {
        match (self.warm_up, cfg!(debug_assertions)) {
            (true, _) => warm_up,
            (false, true) => debug,
            (false, false) => release,
        }
    }

    /// Whether `object` is where it has to be.
    fn assert_owner<T: ?Sized>(&self, object: &T, tenant: &Tenant) {
        match chosen() {
            Chosen::Allotment => assert_eq!(Tenant::owner_of(object).as_ref(), Some(tenant)),
            Chosen::System => assert_eq!(Tenant::owner_of(object), None),
        }
    }
}

/// Runs `workload` with `count` tenants of its own on this process' allocator and compares with the system's.
fn same_as_on_system(test: &str, count: usize, workload: impl Fn(&Stage) -> u64) {
    let on_system = std::env::var_os(SNAPSHOT).map(PathBuf::from);
    assert_eq!(Allotment::is_installed(), on_system.is_none());
    let sources: Sources = match &on_system {
        Some(snapshot) => serde_json::from_slice(&std::fs::read(snapshot).expect("the parent wrote it")).expect("JSON"),
        None => read_sources(),
    };
    let root = vec![Tenant::root(); count];
    workload(&Stage { sources: &sources, warm_up: true, tenants: &root, live: &|| () });

    let prefix = format!("{test} ");
    let tenants: Vec<Tenant> = (0..count).map(|n| Tenant::new(&format!("{prefix}{n}")).expect("few exist")).collect();
    let owned = || allotment::tenants().into_iter().filter(|tenant| tenant.name().starts_with(&prefix));
    let recounted = |alive: bool| {
        allotment::verify().expect("every counter is what is on the heap");
        assert_eq!(owned().count(), count);
        for tenant in owned() {
            let settled = tenant.settle();
            let recount: usize = tenant.size_classes().iter().map(|class| class.bytes).sum();
            assert_eq!(settled, recount + tenant.stats().external, "{tenant:?}");
            assert_eq!(settled > 0, alive, "{tenant:?} has {settled} bytes: {:?}", tenant.size_classes());
        }
    };
    let looked = std::cell::Cell::new(0);
    let live = || {
        looked.set(looked.get() + 1);
        recounted(on_system.is_none());
    };
    let digest = workload(&Stage { sources: &sources, warm_up: false, tenants: &tenants, live: &live });
    recounted(false);
    assert_eq!(looked.get(), 1, "the workload showed its results");
    assert!(tenants.iter().all(|tenant| (tenant.peak() > 0) == on_system.is_none()));
    if on_system.is_some() {
        println!("digest <{digest:016x}>");
        return;
    }

    let snapshot = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}.json", std::process::id()));
    std::fs::write(&snapshot, serde_json::to_vec(&sources).expect("strings")).expect("a folder of our own");
    let path = snapshot.to_str().expect("the target directory is UTF-8");
    let child = common::run_child(test, &[(SNAPSHOT, path)], Duration::from_secs(120));
    std::fs::remove_file(&snapshot).expect("written above");
    let success = child.status.is_some_and(|status| status.success());
    assert!(success, "{:?}\n{}\n{}", child.status, child.stdout, child.stderr);
    let theirs = child.stdout.split(['<', '>']).nth(1);
    assert_eq!(theirs, Some(&*format!("{digest:016x}")), "the system allocator's result is another\n{}", child.stdout);
}

/// All sources as JSON, at least `size` bytes of it.
fn document(sources: &Sources, size: usize) -> String {
    let mut text = String::from("[");
    for (n, (path, source)) in sources.iter().cycle().enumerate() {
        let lines: Vec<Value> = source
            .lines()
            .enumerate()
            .map(|(line, text)| {
                let words: Vec<&str> = text.split_whitespace().collect();
                let blank = words.is_empty().then_some(true);
                json!({ "line": line, "text": text, "words": words, "blank": blank,
                        "share": text.len() as f64 / 128.0, "hash": noise(text.len() as u64) as i64 })
            })
            .collect();
        write!(text, "{}", json!({ "n": n, "path": path, "lines": lines })).expect("a string");
        if text.len() >= size {
            break;
        }
        text.push(',');
    }
    text.push(']');
    text
}

#[test]
fn serde_json_parses_and_prints() {
    same_as_on_system("serde_json_parses_and_prints", 2, |stage| {
        let text = document(stage.sources, stage.size(10_000, 4_000_000, 8_000_000));
        let [printer, reader] = stage.tenants else { panic!("two tenants") };
        let parsed: Value = printer.in_scope(|| serde_json::from_str(&text).expect("it was printed"));
        let pretty = printer.in_scope(|| serde_json::to_string_pretty(&parsed).expect("it was parsed"));
        let again: Value = reader.in_scope(|| serde_json::from_slice(pretty.as_bytes()).expect("it was printed"));
        let compact = reader.in_scope(|| again.to_string());
        assert_eq!(parsed, again);
        assert_eq!(compact, text);
        stage.assert_owner(&*pretty, printer);
        stage.assert_owner(&*compact, reader);
        let first = parsed[0]["lines"][0]["text"].as_str().expect("the first line");
        stage.assert_owner(first, printer);
        (stage.live)();
        let mut digest = Fnv::default();
        digest.write(pretty.as_bytes());
        digest.write(compact.as_bytes());
        digest.finish()
    });
}

const PATTERNS: [&str; 9] = [
    r"(?m)^\s*(?:pub(?:\([a-z]+\))?\s+)?fn\s+(?P<name>\w+)",
    r"\b(?i:tenant|charge|limit)s?\b",
    r#""(?:[^"\\]|\\.)*""#,
    r"(?m)//[/!]?\s*(.*)$",
    r"0x[0-9a-f_]+|\b\d[\d_]*(?:usize|u\d+)?\b",
    r"(?s)unsafe\s*\{.{0,200}?\}",
    r"(\w+)::(\w+)(?:::(\w+))?",
    r"\p{Lu}\p{Ll}+(?:\p{Lu}\p{Ll}+)+",
    r"[^\x00-\x7f]+",
];

#[test]
fn regex_searches_all_sources() {
    same_as_on_system("regex_searches_all_sources", 2, |stage| {
        // The patterns are one tenant's; both use them, at once and each in its scope, so that each pays for some of
        // the engines' scratch spaces, which live as long as the patterns.
        let files = stage.size(1, stage.sources.len(), stage.sources.len());
        let patterns: Arc<Vec<regex::Regex>> = stage.tenants[0].in_scope(|| {
            let compiled = PATTERNS.iter().map(|pattern| regex::Regex::new(pattern).expect("a valid pattern"));
            Arc::new(compiled.collect())
        });
        let haystacks: Arc<Sources> = Arc::new(stage.sources[..files].to_vec());
        let search = |tenant: Tenant, offset: usize| {
            let (patterns, haystacks) = (patterns.clone(), haystacks.clone());
            std::thread::spawn(move || {
                let _entered = tenant.enter();
                let mut found: Vec<(usize, usize, usize, Option<String>)> = Vec::new();
                for (_, haystack) in haystacks.iter().skip(offset).step_by(2) {
                    for (n, pattern) in patterns.iter().enumerate() {
                        found.extend(pattern.captures_iter(haystack).map(|captures| {
                            let all = captures.get(0).expect("group 0 is the match");
                            (n, all.start(), all.end(), captures.get(1).map(|group| group.as_str().to_owned()))
                        }));
                    }
                }
                let names = patterns[0].replace_all(&haystacks[0].1, "<$name>").into_owned();
                (found, names)
            })
        };
        let threads: Vec<_> = stage.tenants.iter().enumerate().map(|(n, tenant)| search(tenant.clone(), n)).collect();
        let found: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a search")).collect();
        for ((matches, names), tenant) in found.iter().zip(stage.tenants) {
            assert!(stage.warm_up || matches.len() > 1000, "{} matches", matches.len());
            stage.assert_owner(&**names, tenant);
        }
        (stage.live)();
        let mut digest = Fnv::default();
        for (matches, names) in &found {
            for (pattern, start, end, group) in matches {
                digest.write(&[*pattern as u8]);
                digest.write(&start.to_le_bytes());
                digest.write(&end.to_le_bytes());
                digest.write(group.as_deref().unwrap_or("-").as_bytes());
            }
            digest.write(names.as_bytes());
        }
        digest.finish()
    });
}

#[test]
fn rayon_sorts_and_collects() {
    same_as_on_system("rayon_sorts_and_collects", 2, |stage| {
        // The pool is root's, and so are its threads; what rayon keeps (its queues, an epoch record per thread) is made
        // when a worker first looks for work, in root.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().expect("four threads");
        pool.broadcast(|_| ());
        let strings = stage.size(1000, 60_000, 1_000_000);
        let words: Vec<&str> =
            stage.sources.iter().flat_map(|(_, text)| text.split_whitespace()).take(50_000).collect();
        let make = |n: u64| {
            let at = noise(n);
            format!("{} {:x} {n}", words[at as usize % words.len()], at >> 40)
        };
        let work = |tenant: &Tenant, seed: u64| {
            tenant.in_scope(|| {
                // Workers start in root; and one that waits here may be lent the other tenant's jobs.
                let numbers = (0..strings as u64).into_par_iter();
                let mut all: Vec<String> = numbers.map(|n| tenant.in_scope(|| make(n ^ seed << 32))).collect();
                all.par_sort();
                let mut shouted: Vec<String> =
                    all.par_iter().map(|string| tenant.in_scope(|| string.to_uppercase())).collect();
                shouted.par_sort_unstable_by(|a, b| b.cmp(a));
                (all, shouted)
            })
        };
        let (first, second) = (&stage.tenants[0], &stage.tenants[1]);
        let (a, b) = pool.install(|| rayon::join(|| work(first, 1), || work(second, 2)));
        let mut digest = Fnv::default();
        for (tenant, (sorted, shouted)) in [(first, &a), (second, &b)] {
            assert_eq!((sorted.len(), shouted.len()), (strings, strings));
            assert!(sorted.is_sorted() && shouted.iter().rev().is_sorted());
            stage.assert_owner(&sorted[..], tenant);
            stage.assert_owner(&shouted[..], tenant);
            for string in sorted.iter().chain(shouted).step_by(1009) {
                stage.assert_owner(&**string, tenant);
            }
            sorted.iter().chain(shouted).for_each(|string| digest.write(string.as_bytes()));
        }
        (stage.live)();
        // Freed by the workers, in root.
        pool.install(|| [a.0, a.1, b.0, b.1].into_par_iter().for_each(|all| all.into_par_iter().for_each(drop)));
        digest.finish()
    });
}

/// What the server does for one client: counts words of JSON documents and answers with all counts so far.
async fn serve(mut socket: tokio::net::TcpStream) -> std::io::Result<usize> {
    let (mut body, mut reply) = (Vec::new(), Vec::new());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut requests = 0;
    loop {
        let length = socket.read_u32().await? as usize;
        if length == 0 {
            return Ok(requests);
        }
        body.resize(length, 0);
        socket.read_exact(&mut body).await?;
        requests += 1;
        let value: Value = serde_json::from_slice(&body)?;
        for word in value["text"].as_str().unwrap_or("").split_whitespace() {
            *counts.entry(word.to_owned()).or_default() += 1;
        }
        reply.clear();
        serde_json::to_writer(&mut reply, &json!({ "requests": requests, "counts": counts, "tags": value["tags"] }))?;
        // Nothing is allocated or freed from here on until the next request is here: the test counts meanwhile.
        drop(value);
        socket.write_u32(reply.len() as u32).await?;
        socket.write_all(&reply).await?;
    }
}

/// Lets this process have `files` files open.
fn raise_open_files(files: libc::rlim_t) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    if limit.rlim_cur < files {
        limit.rlim_cur = files;
        limit.rlim_max = limit.rlim_max.max(files);
        // SAFETY: the pointer is to a local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0, "{files} open files are not allowed");
    }
}

#[test]
fn tokio_serves_a_thousand_connections() {
    raise_open_files(4096);
    same_as_on_system("tokio_serves_a_thousand_connections", 8, |stage| {
        let connections = stage.size(20, 1000, 1000);
        let lines: Arc<Vec<String>> =
            Arc::new(stage.sources.iter().flat_map(|(_, text)| text.lines()).take(20_000).map(str::to_owned).collect());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
        let digests = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
            let listener = socket.listen(2048).expect("it is bound");
            let address = listener.local_addr().expect("it is bound");
            let tenants: Arc<[Tenant]> = stage.tenants.into();
            let server = tokio::spawn(async move {
                let mut tasks = Vec::new();
                for _ in 0..connections {
                    let (mut socket, _) = listener.accept().await.expect("a connection");
                    let tenants = tenants.clone();
                    tasks.push(tokio::spawn(async move {
                        let tenant = usize::from(socket.read_u8().await?);
                        serve(socket).in_tenant(&tenants[tenant]).await
                    }));
                }
                let mut requests = 0;
                for task in tasks {
                    requests += task.await.expect("no panic").expect("no lost connection");
                }
                requests
            });

            // Everybody is connected and has state on the server before anybody goes on.
            let barrier = Arc::new(tokio::sync::Barrier::new(connections + 1));
            let count = stage.tenants.len();
            let clients: Vec<_> = (0..connections)
                .map(|client| {
                    let (barrier, lines) = (barrier.clone(), lines.clone());
                    tokio::spawn(async move {
                        let mut socket = tokio::net::TcpStream::connect(address).await?;
                        socket.write_u8((client % count) as u8).await?;
                        let mut digest = Fnv::default();
                        for request in 0..4 {
                            let at = noise((client * 4 + request) as u64) as usize % (lines.len() - 8);
                            let text = lines[at..at + 8].join("\n");
                            let body = json!({ "text": text, "tags": [client, request, at] }).to_string();
                            socket.write_u32(body.len() as u32).await?;
                            socket.write_all(body.as_bytes()).await?;
                            let mut reply = vec![0; socket.read_u32().await? as usize];
                            socket.read_exact(&mut reply).await?;
                            let answer: Value = serde_json::from_slice(&reply)?;
                            assert_eq!(answer["requests"], request + 1);
                            assert_eq!(answer["tags"][0], client);
                            digest.write(&reply);
                            if request == 1 {
                                barrier.wait().await;
                                barrier.wait().await;
                            }
                        }
                        socket.write_u32(0).await?;
                        std::io::Result::Ok(digest.finish())
                    })
                })
                .collect();
            barrier.wait().await;
            (stage.live)();
            barrier.wait().await;
            let mut digest = Fnv::default();
            for client in clients {
                digest.write(&client.await.expect("no panic").expect("an answer").to_le_bytes());
            }
            assert_eq!(server.await.expect("no panic"), 4 * connections);
            digest.finish()
        });
        // Sockets closed inside a tenant may have grown a list of the runtime, which goes with it.
        drop(runtime);
        digests
    });
}

type Map = hashbrown::HashMap<u64, (String, Vec<u8>), BuildHasherDefault<Fnv>>;
type Tree = BTreeMap<String, Box<[u64]>>;

/// One thread's part: what it makes goes to the next thread, what it keeps came from the previous one.
fn churn(seed: u64, rounds: u64, next: &mpsc::Sender<Map>, previous: &mpsc::Receiver<Map>) -> (Fnv, Map, Tree) {
    let (mut digest, mut map, mut tree) = (Fnv::default(), Map::default(), Tree::new());
    for round in 0..rounds {
        let batch = (0..200).map(|n| {
            let at = noise(seed << 40 | round << 10 | n);
            (at % 5000, (format!("{at:x}").repeat(1 + at as usize % 5), vec![at as u8; (at >> 8) as usize % 700]))
        });
        next.send(batch.collect()).expect("the next thread receives as often");
        for (key, (text, bytes)) in previous.recv().expect("the previous thread sends as often") {
            if key % 3 == 0 {
                if let Some((text, bytes)) = map.remove(&(key / 3)) {
                    digest.write(text.as_bytes());
                    digest.write(&bytes);
                }
            }
            tree.insert(text.clone(), vec![key; key as usize % 40].into_boxed_slice());
            map.insert(key, (text, bytes));
        }
        if round % 16 == 15 {
            map.retain(|key, _| key % 7 != round / 16 % 7);
            map.shrink_to_fit();
            let middle = tree.keys().nth(tree.len() / 2).expect("many").clone();
            let upper = tree.split_off(&middle);
            let lower = std::mem::replace(&mut tree, upper);
            lower.into_iter().for_each(|(text, keys)| digest.write(&[text.len() as u8, keys.len() as u8]));
        }
    }
    (digest, map, tree)
}

#[test]
fn maps_churn_across_threads() {
    same_as_on_system("maps_churn_across_threads", 4, |stage| {
        let rounds = stage.size(2, 150, 1500) as u64;
        let (mut senders, receivers): (Vec<_>, Vec<_>) = stage.tenants.iter().map(|_| mpsc::channel()).unzip();
        senders.rotate_left(1);
        let ends = senders.into_iter().zip(receivers).zip(stage.tenants.to_vec());
        let threads: Vec<_> = ends
            .enumerate()
            .map(|(n, ((next, previous), tenant))| {
                std::thread::spawn(move || tenant.in_scope(|| churn(n as u64, rounds, &next, &previous)))
            })
            .collect();
        let kept: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("churned")).collect();
        let mut digest = Fnv::default();
        for (n, (churned, map, tree)) in kept.iter().enumerate() {
            let (own, previous) = (&stage.tenants[n], &stage.tenants[(n + 3) % 4]);
            digest.write(&churned.finish().to_le_bytes());
            for (key, (text, bytes)) in map {
                stage.assert_owner(&**text, previous);
                digest.write(&key.to_le_bytes());
                digest.write(text.as_bytes());
                digest.write(bytes);
            }
            for (text, keys) in tree {
                stage.assert_owner(&**text, own);
                digest.write(text.as_bytes());
                keys.iter().for_each(|key| digest.write(&key.to_le_bytes()));
            }
            assert!(!map.is_empty() && !tree.is_empty());
        }
        (stage.live)();
        // Each freed by a thread that made none of it, inside a tenant that owns none of it.
        let frees = kept.into_iter().enumerate().map(|(n, kept)| {
            let tenant = stage.tenants[(n + 1) % 4].clone();
            std::thread::spawn(move || tenant.in_scope(|| drop(kept)))
        });
        frees.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("freed"));
        digest.finish()
    });
}

//! A client that dies, and the one that comes after it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use a3sbox_core::ExecutionIsolation;
use a3sbox_sdk::{A3sBoxClient, Sandbox, SandboxLogOptions};

use crate::support::{Home, IMAGE, eventually};

const HOME: &str = "A3SBOX_SDK_TEST_CLIENT_HOME";
const SCRIPT: &str = "A3SBOX_SDK_TEST_CLIENT_SCRIPT";
const MARK: &str = "sandbox=";

/// The client's own process: this very test binary, told by its environment to be one. Without that there is
/// nothing to do.
#[tokio::test]
async fn as_a_client_of_its_own() {
    let (Ok(home), Ok(script)) = (std::env::var(HOME), std::env::var(SCRIPT)) else {
        return;
    };
    let sandbox = A3sBoxClient::from_home(home)
        .sandbox(IMAGE)
        .isolation(ExecutionIsolation::Sandbox)
        .command(["sh", "-c", &script])
        .start()
        .await
        .unwrap();
    println!("\n{MARK}{}", sandbox.id());
    std::future::pending::<()>().await;
}

/// Starts a client and waits until it has its sandbox.
fn client(home: &Path, script: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "processes::as_a_client_of_its_own",
            "--nocapture",
        ])
        .env(HOME, home)
        .env(SCRIPT, script)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let id = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix(MARK).map(str::to_owned))
        .expect("the client has a sandbox");
    (child, id)
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_client_that_is_killed_leaves_its_sandbox_to_the_next() {
    let home = Home::new().await;
    let script = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done";
    let (child, id) = client(home.path(), script);
    kill(child);
    let sandbox = Sandbox::connect_with_client(home.client.clone(), &id)
        .await
        .unwrap();
    assert!(sandbox.is_running().await.unwrap());
    assert_eq!(
        sandbox.commands.run("echo on").await.unwrap().stdout,
        "on\n"
    );
    sandbox.files.write("/file", "new").await.unwrap();
    let numbers = eventually("lines of both clients", async || {
        let entries = sandbox.logs(SandboxLogOptions::tail(10_000)).await.unwrap();
        let numbers: Vec<u32> = entries
            .iter()
            .filter_map(|entry| entry.log.trim().strip_prefix("line ")?.parse().ok())
            .collect();
        (numbers.len() > 20).then_some(numbers)
    })
    .await;
    // What was written while nobody looked is there too; the line in flight may come twice.
    let mut once = numbers.clone();
    once.dedup();
    let expected: Vec<u32> = (1..=*once.last().unwrap()).collect();
    assert_eq!(once, expected);
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[&id]);
}

#[tokio::test]
async fn an_end_that_nobody_saw_is_an_end_without_an_invented_code() {
    let home = Home::new().await;
    let (child, id) = client(home.path(), "echo begun; sleep 1; echo bye; exit 3");
    kill(child);
    let pids = Path::new("/sys/fs/cgroup/pids").join(format!("a3s-box-{id}"));
    let unified = Path::new("/sys/fs/cgroup").join(format!("a3s-box-{id}"));
    eventually("the end", async || {
        let processes = [&pids, &unified]
            .iter()
            .find_map(|folder| std::fs::read_to_string(folder.join("cgroup.procs")).ok());
        processes.unwrap_or_default().is_empty().then_some(())
    })
    .await;
    let sandbox = Sandbox::connect_with_client(home.client.clone(), &id)
        .await
        .unwrap();
    eventually("the end to be told", async || {
        (!sandbox.is_running().await.unwrap()).then_some(())
    })
    .await;
    let entries = sandbox.logs(SandboxLogOptions::default()).await.unwrap();
    let texts: Vec<_> = entries.iter().map(|entry| entry.log.as_str()).collect();
    assert_eq!(texts, ["begun\n", "bye\n"]);
    // This process may have inherited the orphan and its status, as a subreaper above its client. Otherwise
    // nobody knows.
    let record = record(home.path(), &id);
    assert_eq!(record["status"], "stopped");
    let code = record.get("exit_code").and_then(serde_json::Value::as_i64);
    assert!(matches!(code, None | Some(3)), "{code:?}");
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[&id]);
}

/// The record as it is stored, with whatever is around it.
fn record(home: &Path, id: &str) -> serde_json::Value {
    let path = home.join("boxes.json").join(id).join("record.json");
    let stored: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    match stored.get("record") {
        Some(record) => record.clone(),
        None => stored,
    }
}

#[tokio::test]
async fn a_start_that_cannot_be_prepared_leaves_nothing_mounted() {
    let home = Home::new().await;
    let refused = home.sandbox().user("nobody-here").start().await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("no user \"nobody-here\""), "{text}");
    let refused = home.sandbox().command(["/no/such"]).start().await;
    assert!(refused.is_err());
    home.assert_nothing_left(&[]);
}

//! A sandbox in three lines, and what can be done with it: commands, files, logs.
//!
//! ```sh
//! hack/image a3sbox.test/busybox:1 /tmp/busybox.tar sh
//! cargo run -p a3sbox-sdk --example quickstart -- /tmp/busybox.tar
//! ```
//!
//! The archive may also be named by `A3SBOX_EXAMPLE_IMAGE`. Needs root and `runc`.

use a3sbox_core::ExecutionIsolation;
use a3sbox_sdk::{A3sBoxClient, SandboxLogOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let archive = std::env::args()
        .nth(1)
        .or_else(|| std::env::var("A3SBOX_EXAMPLE_IMAGE").ok())
        .ok_or("usage: quickstart IMAGE.tar (make one with hack/image)")?;
    let home = tempfile::tempdir()?;

    // Three lines.
    let client = A3sBoxClient::from_home(home.path());
    let image = client.import_image(archive).await?;
    let sandbox = client
        .sandbox(&image.name)
        .isolation(ExecutionIsolation::Sandbox)
        .command(["sh", "-c", "echo ready; exec sleep 1000"])
        .start()
        .await?;
    println!("image    {} ({} bytes)", image.name, image.size);
    println!("sandbox  {}", sandbox.id());

    let run = sandbox
        .commands
        .run("id -u; cat /proc/self/uid_map")
        .await?;
    print!("exec     exit {}: {}", run.exit_code, run.stdout);

    let info = sandbox.files.write("/tmp/hello.txt", "hello").await?;
    let text = sandbox.files.read_text("/tmp/hello.txt").await?;
    println!("files    {} has {} bytes: {text}", info.path, info.size);

    for entry in sandbox.logs(SandboxLogOptions::default()).await? {
        print!("log      {} {}", entry.stream, entry.log);
    }
    sandbox.kill().await?;
    println!("ended    nothing is left of it");
    Ok(())
}

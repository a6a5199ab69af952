//! Section 9: commands and scripts.

use std::time::Duration;

use a3sbox_core::{ExecOutput, ExecRequest};
use a3sbox_sdk::{CommandRunOptions, SandboxCommand};

use crate::fake::{Call, Fake, refused, world};

/// The one command that was executed, without its random id.
fn executed(fake: &Fake) -> ExecRequest {
    let calls = fake.take();
    let [Call::Execute(1, request)] = &calls[..] else {
        panic!("{calls:?}");
    };
    let mut request = request.clone();
    let id = request.request_id.take().unwrap();
    assert_eq!(id.strip_prefix("sdk-command-").unwrap().len(), 36);
    request
}

fn plain(cmd: &[&str]) -> ExecRequest {
    ExecRequest {
        request_id: None,
        cmd: cmd.iter().map(|word| (*word).to_owned()).collect(),
        timeout_ns: 0,
        env: vec![],
        working_dir: None,
        rootfs: None,
        stdin: None,
        stdin_streaming: false,
        user: None,
        streaming: false,
    }
}

#[tokio::test]
async fn a_line_goes_to_the_shell_and_words_go_as_they_are() {
    let world = world();
    let commands = world.sandbox().await.commands;
    commands.run(" echo 'a b' ").await.unwrap();
    assert_eq!(
        executed(&world.fake),
        plain(&["/bin/sh", "-lc", " echo 'a b' "])
    );
    commands.run(String::from("true")).await.unwrap();
    assert_eq!(executed(&world.fake).cmd[2], "true");
    commands.run(SandboxCommand::shell("x")).await.unwrap();
    assert_eq!(executed(&world.fake).cmd[2], "x");
    commands
        .run(vec!["ls".to_owned(), "-l a".to_owned()])
        .await
        .unwrap();
    assert_eq!(executed(&world.fake), plain(&["ls", "-l a"]));
    commands.run(SandboxCommand::argv(["id"])).await.unwrap();
    assert_eq!(executed(&world.fake), plain(&["id"]));
}

#[tokio::test]
async fn options_end_up_in_the_request() {
    let world = world();
    let commands = world.sandbox().await.commands;
    let options = CommandRunOptions::default()
        .timeout(Duration::from_millis(1500))
        .env("Z", "1")
        .env("A", "x=y")
        .cwd("/w")
        .user("1000")
        .stdin("in");
    commands.run_with_options("cat", options).await.unwrap();
    assert_eq!(
        executed(&world.fake),
        ExecRequest {
            timeout_ns: 1_500_000_000,
            env: vec!["A=x=y".into(), "Z=1".into()],
            working_dir: Some("/w".into()),
            user: Some("1000".into()),
            stdin: Some(b"in".to_vec()),
            ..plain(&["/bin/sh", "-lc", "cat"])
        }
    );
    let forever = CommandRunOptions::default().timeout(Duration::MAX);
    commands.run_with_options("x", forever).await.unwrap();
    assert_eq!(executed(&world.fake).timeout_ns, u64::MAX);
}

#[tokio::test]
async fn a_failure_of_the_command_is_a_result() {
    let world = world();
    let commands = world.sandbox().await.commands;
    world.fake.answer(ExecOutput {
        stdout: b"ok \xff".to_vec(),
        stderr: b"bad".to_vec(),
        exit_code: 3,
        truncated: true,
    });
    let result = commands.run("false").await.unwrap();
    assert_eq!(result.stdout, "ok \u{fffd}");
    assert_eq!(result.stderr, "bad");
    assert_eq!((result.exit_code, result.truncated), (3, true));
}

#[tokio::test]
async fn bad_commands_are_refused_without_a_call() {
    let world = world();
    let commands = world.sandbox().await.commands;
    for line in ["", "  ", "\n"] {
        refused(commands.run(line).await);
    }
    refused(commands.run(Vec::<String>::new()).await);
    refused(commands.run(SandboxCommand::argv([" "])).await);
    for options in [
        CommandRunOptions::default().timeout(Duration::ZERO),
        CommandRunOptions::default().env("A=B", "c"),
    ] {
        refused(commands.run_with_options("true", options).await);
    }
    assert_eq!(world.fake.calls(), []);
}

#[tokio::test]
async fn each_run_has_an_id_of_its_own() {
    let world = world();
    let commands = world.sandbox().await.commands;
    commands.run("true").await.unwrap();
    commands.run("true").await.unwrap();
    let calls = world.fake.calls();
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0], calls[1]);
}

#[tokio::test]
async fn a_script_is_on_standard_input_and_nowhere_else() {
    let world = world();
    let sandbox = world.sandbox().await;
    let source = b"print('x')\n\0\xff";
    sandbox
        .script(source)
        .interpreter(["python", "-"])
        .env("CI", "true")
        .cwd("/workspace")
        .run()
        .await
        .unwrap();
    assert_eq!(
        executed(&world.fake),
        ExecRequest {
            stdin: Some(source.to_vec()),
            env: vec!["CI=true".into()],
            working_dir: Some("/workspace".into()),
            ..plain(&["python", "-"])
        }
    );
    assert!(world.home_entries().is_empty());

    let script = sandbox.commands.script("exit 0");
    script
        .timeout(Duration::from_secs(1))
        .user("root")
        .run()
        .await
        .unwrap();
    let request = executed(&world.fake);
    assert_eq!(request.cmd, ["/bin/sh", "-se"]);
    assert_eq!(request.timeout_ns, 1_000_000_000);
    assert_eq!(request.user.as_deref(), Some("root"));
}

#[tokio::test]
async fn an_empty_script_or_interpreter_is_refused() {
    let world = world();
    let sandbox = world.sandbox().await;
    refused(sandbox.script("").run().await);
    let none: [&str; 0] = [];
    refused(sandbox.script("x").interpreter(none).run().await);
    refused(sandbox.script("x").timeout(Duration::ZERO).run().await);
    assert_eq!(world.fake.calls(), []);
}

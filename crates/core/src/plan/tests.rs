use super::*;
use crate::config::ResourceLimits;

const BOTH: [ExecutionIsolation; 2] = [ExecutionIsolation::Microvm, ExecutionIsolation::Sandbox];

fn config(isolation: ExecutionIsolation) -> BoxConfig {
    BoxConfig {
        isolation,
        ..BoxConfig::default()
    }
}

fn with_option(isolation: ExecutionIsolation, entry: &str) -> BoxConfig {
    BoxConfig {
        security_opt: vec![entry.to_owned()],
        ..config(isolation)
    }
}

fn refusal(config: &BoxConfig) -> String {
    match resolve_execution(config) {
        Err(BoxError::ConfigError(message)) => message,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn equal_configurations_give_equal_plans() {
    for isolation in BOTH {
        let first = resolve_execution(&config(isolation)).unwrap();
        assert_eq!(first, resolve_execution(&config(isolation)).unwrap());
        let stored = serde_json::to_string(&first).unwrap();
        assert_eq!(
            serde_json::from_str::<ResolvedExecutionPlan>(&stored).unwrap(),
            first
        );
    }
}

#[test]
fn a_microvm_takes_no_controls_and_every_ordinary_option() {
    let mut config = config(ExecutionIsolation::Microvm);
    config.network = NetworkMode::Bridge {
        network: "ci".into(),
    };
    config.port_map = vec!["8080:80".into()];
    config.extra_env = vec![("A".into(), "B".into())];
    config.dns = vec!["1.1.1.1".into()];
    config.read_only = true;
    config.volumes = vec!["cache:/cache:rw".into()];
    config.privileged = true;
    config.cap_add = vec!["SYS_ADMIN".into()];
    config.cap_drop = vec!["ALL".into()];
    let plan = resolve_execution(&config).unwrap();
    assert_eq!(plan.requested_isolation, ExecutionIsolation::Microvm);
    assert_eq!(plan.isolation_class, IsolationClass::DedicatedVm);
    assert!(plan.required_controls.is_empty());
}

#[test]
fn a_sandbox_takes_ten_controls_in_order() {
    let mut config = config(ExecutionIsolation::Sandbox);
    config.image = "alpine:3.20".into();
    config.extra_env = vec![("A".into(), "B".into())];
    config.dns = vec!["1.1.1.1".into()];
    config.resources.timeout = 120;
    config.read_only = true;
    config.resource_limits = ResourceLimits {
        pids_limit: Some(64),
        ..ResourceLimits::default()
    };
    let plan = resolve_execution(&config).unwrap();
    assert_eq!(plan.isolation_class, IsolationClass::SharedHostKernel);
    assert_eq!(
        plan.required_controls.join(" "),
        "user-namespace mount-namespace pid-namespace ipc-namespace uts-namespace \
         network-namespace seccomp capability-bounding-set no-new-privileges cgroup-v2"
    );
}

#[test]
fn security_options_follow_the_table() {
    // (entry, accepted by Microvm, accepted by Sandbox, text of the refusal)
    let table = [
        ("no-new-privileges", true, true, ""),
        ("no-new-privileges=true", true, true, ""),
        (" No-New-Privileges=TRUE ", true, true, ""),
        ("no-new-privileges=false", true, false, "no-new-privileges"),
        ("no-new-privileges=maybe", false, false, "no-new-privileges"),
        ("no-new-privileges=", false, false, "no-new-privileges"),
        ("seccomp=default", true, true, ""),
        ("SECCOMP=Default", true, true, ""),
        ("seccomp=unconfined", true, false, "seccomp=unconfined"),
        ("seccomp=", false, false, "seccomp="),
        ("seccomp=/p.json", false, false, "custom seccomp"),
        ("seccomp=a=b", false, false, "custom seccomp"),
        ("apparmor=runtime/default", false, false, "AppArmor"),
        ("AppArmor=", false, false, "AppArmor"),
        ("label=type:container_t", false, false, "SELinux"),
        ("label=", false, false, "SELinux"),
        ("", false, false, "\"\""),
        ("  ", false, false, "\"\""),
        ("seccomp", false, false, "seccomp"),
        ("label", false, false, "label"),
        ("systempaths=unconfined", false, false, "systempaths"),
    ];
    for (entry, microvm, sandbox, text) in table {
        for (isolation, accepted) in BOTH.into_iter().zip([microvm, sandbox]) {
            let config = with_option(isolation, entry);
            if accepted {
                assert!(resolve_execution(&config).is_ok(), "{entry} {isolation:?}");
            } else {
                let message = refusal(&config);
                assert!(message.contains(text), "{entry} {isolation:?}: {message}");
            }
        }
    }
}

#[test]
fn the_first_offending_option_wins() {
    let mut config = config(ExecutionIsolation::Microvm);
    config.security_opt = ["seccomp=default", "label=x", "apparmor=y"]
        .map(str::to_owned)
        .to_vec();
    let message = refusal(&config);
    assert!(message.contains("SELinux") && !message.contains("AppArmor"));
}

#[test]
fn a_sandbox_names_every_feature_it_lacks() {
    let mut config = config(ExecutionIsolation::Sandbox);
    config.privileged = true;
    config.port_map = vec!["8080:80".into()];
    config.network = NetworkMode::Bridge {
        network: "ci".into(),
    };
    config.sysctls = vec![("net.core.somaxconn".into(), "1".into())];
    let message = refusal(&config);
    for name in ["privileged", "port_map", "bridge network", "sysctls"] {
        assert!(message.contains(name), "{message}");
    }
    config.privileged = false;
    assert!(!refusal(&config).contains("privileged"));
}

#[test]
fn a_sandbox_adds_only_capabilities_of_its_own_namespaces() {
    for name in SANDBOX_CAPABILITIES {
        let mut config = config(ExecutionIsolation::Sandbox);
        config.cap_add = vec![
            name.to_owned(),
            format!("CAP_{name}"),
            format!("cap_{}", name.to_ascii_lowercase()),
        ];
        resolve_execution(&config).unwrap();
    }
    for name in ["SYS_ADMIN", "CAP_NET_ADMIN", "ALL", "", "CAP_CAP_CHOWN"] {
        let mut config = config(ExecutionIsolation::Sandbox);
        config.cap_add = vec!["CHOWN".into(), name.to_owned()];
        let message = refusal(&config);
        assert!(
            message.contains(name) && !message.contains("CHOWN,"),
            "{message}"
        );
    }
}

#[test]
fn each_validator_leaves_the_other_isolation_alone() {
    for isolation in BOTH {
        let config = with_option(isolation, "label=x");
        assert_eq!(
            validate_microvm_compatibility(&config).is_err(),
            isolation == ExecutionIsolation::Microvm
        );
        assert_eq!(
            validate_sandbox_compatibility(&config).is_err(),
            isolation == ExecutionIsolation::Sandbox
        );
    }
}

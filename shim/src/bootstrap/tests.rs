use std::ffi::OsString;

use containerd_shim_protos::bootstrap_api::Extension;

use super::*;
use crate::args::Args;

const ADDRESS: &str = "unix:///run/containerd/s/abc";

fn args() -> Args {
    let words = [
        "-namespace",
        "ns",
        "-id",
        "c1",
        "-address",
        "/run/c.sock",
        "start",
    ];
    Args::parse(words.iter().map(OsString::from)).unwrap()
}

fn environment(max_shim_version: bool) -> Environment {
    Environment {
        max_shim_version,
        ttrpc_address: "/run/c.sock.ttrpc".into(),
        sched_core: false,
    }
}

fn params(id: &str) -> BootstrapParams {
    let mut params = BootstrapParams::new();
    params.instance_id = id.into();
    params.namespace = "ns".into();
    params.containerd_grpc_address = "/run/other.sock".into();
    params.containerd_ttrpc_address = "/run/other.sock.ttrpc".into();
    params.socket_dir = Some("/run/s".into());
    params
}

fn read(input: &[u8], max_shim_version: bool) -> StartCall {
    StartCall::read(
        &args(),
        Path::new("/b"),
        input,
        &environment(max_shim_version),
    )
}

#[test]
fn containerd_1_6_gets_the_plain_address() {
    let call = read(b"", false);
    assert_eq!(call.form, AnswerForm::PlainAddress);
    assert_eq!(call.ttrpc_address, "/run/c.sock.ttrpc");
    assert_eq!(call.answer(ADDRESS), ADDRESS.as_bytes());
}

#[test]
fn containerd_1_7_to_2_2_get_json_of_version_2() {
    let call = read(b"", true);
    let answer: serde_json::Value = serde_json::from_slice(&call.answer(ADDRESS)).unwrap();
    assert_eq!(
        answer,
        serde_json::json!({"version": 2, "address": ADDRESS, "protocol": "ttrpc"})
    );
}

#[test]
fn containerd_2_3_gets_protobuf_of_version_3() {
    let mut params = params("c1");
    let mut extension = Extension::new();
    let mut any = Any::new();
    any.type_url = "containerd.runc.v1.Options".into();
    extension.value = Some(any.clone()).into();
    params.extensions.push(extension);
    let call = read(&params.write_to_bytes().unwrap(), true);
    assert_eq!(call.form, AnswerForm::Protobuf);
    assert_eq!(call.address, "/run/other.sock");
    assert_eq!(call.ttrpc_address, "/run/other.sock.ttrpc");
    assert_eq!(call.socket_dir, Some("/run/s".into()));
    assert_eq!(call.options, Some(any));
    let answer = BootstrapResult::parse_from_bytes(&call.answer(ADDRESS)).unwrap();
    assert_eq!((answer.version, answer.address.as_str()), (3, ADDRESS));
    assert_eq!(answer.protocol, "ttrpc");
}

#[test]
fn options_alone_on_stdin_are_not_taken_for_parameters() {
    let mut any = Any::new();
    any.type_url = "containerd.runc.v1.Options".into();
    any.value = vec![0x48, 1];
    for max_shim_version in [false, true] {
        let call = read(&any.write_to_bytes().unwrap(), max_shim_version);
        assert_ne!(call.form, AnswerForm::Protobuf);
        assert_eq!(call.options, Some(any.clone()));
    }
    assert_eq!(
        read(&params("other").write_to_bytes().unwrap(), true).form,
        AnswerForm::Json
    );
    assert_eq!(read(&[0xff, 0xff], false).form, AnswerForm::PlainAddress);
}

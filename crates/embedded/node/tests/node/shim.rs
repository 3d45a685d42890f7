//! The shim as a program of its own, for the tests: in production it is a mode of `knoll`.

fn main() -> std::process::ExitCode {
    knoll_kube_node::shim_main(std::env::args_os().skip(1))
}

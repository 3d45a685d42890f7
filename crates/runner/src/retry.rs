//! Decides whether a step that failed is tried again. Pure.
//!
//! Only failures that can pass by themselves are retried: those of the network, of a registry, and of a server that is
//! overloaded. An error of the module, of a checksum or of a credential is the same in every attempt.

/// What terraform, its registries and providers print when something outside of the module failed for now. Lower case.
const PASSING: [&str; 34] = [
    "429 too many requests",
    "500 internal server error",
    "502 bad gateway",
    "503 service unavailable",
    "504 gateway timeout",
    "504 gateway time-out",
    "bad gateway",
    "broken pipe",
    "client.timeout exceeded",
    "connection refused",
    "connection reset",
    "connection timed out",
    "context deadline exceeded",
    "could not resolve host",
    "early eof",
    "failed to request discovery document",
    "gateway timeout",
    "i/o timeout",
    "internal server error",
    "network is unreachable",
    "no route to host",
    "no such host",
    "operation timed out",
    "rate exceeded",
    "rate limit",
    "remote end hung up unexpectedly",
    "requestlimitexceeded",
    "server misbehaving",
    "service unavailable",
    "temporary failure in name resolution",
    "throttling",
    "tls handshake timeout",
    "too many requests",
    "unexpected eof",
];

/// Whether another attempt can succeed after a failure with this message. Terraform breaks its messages into lines.
pub fn can_pass(message: &str) -> bool {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    PASSING.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_pass_is_tried_again() {
        let rows = [
            (
                true,
                "Error: Failed to query available provider packages\nCould not retrieve the list of available versions \
                 for provider hashicorp/null: could\nnot connect to registry.terraform.io: failed to request discovery\n\
                 document: Get \"https://registry.terraform.io/.well-known/terraform.json\": dial tcp: lookup\n\
                 registry.terraform.io: no such host",
            ),
            (
                true,
                "Error: Failed to install provider\nGet \"https://x/y.zip\": dial tcp 10.0.0.1:443: connect: connection\nrefused",
            ),
            (true, "Error: Failed to download module\nbad response code: 503 Service Unavailable"),
            (
                true,
                "Error: Failed to download module\nread tcp 10.0.0.1:1->10.0.0.2:443: read: connection reset by peer",
            ),
            (true, "Error: reading EC2 Instance: operation error: api error Throttling: Rate exceeded"),
            (true, "Error: net/http: TLS handshake timeout"),
            (
                false,
                "Error: Unreadable module directory\nUnable to evaluate directory symlink: lstat nowhere: no such file or directory",
            ),
            (
                false,
                "Error: Invalid block definition\nA block definition must have block content delimited by \"{\" and \"}\"",
            ),
            (false, "Error: Unsupported argument\nAn argument named \"timeout\" is not expected here."),
            (
                false,
                "Error: Failed to install provider\nthe local package for registry.terraform.io/hashicorp/null 3.2.4 doesn't match\n\
                 any of the checksums previously recorded in the dependency lock file",
            ),
            (
                false,
                "Error: Failed to query available provider packages\nno available releases match the given constraints 9.9.9",
            ),
            (false, "Error: Failed to download module\nbad response code: 404"),
            (false, "Error: Failed to download module\nerror downloading: 401 Unauthorized"),
            (false, ""),
        ];
        for (expect, message) in rows {
            assert_eq!(can_pass(message), expect, "{message}");
        }
    }
}

//! The flags that say what the operator may fetch, shared by `knoll operator`, `knoll up` and `knoll install`.

use knoll_storage::{Addresses, FetchSettings, IpNet, parse_range};

/// What sources may be fetched from.
#[derive(clap::Args, Clone, Debug)]
pub struct FetchArgs {
    /// A range of addresses that sources may be fetched from although it is not public, for example `10.1.0.0/16`;
    /// repeatable. Users who write a source reach these addresses as the operator does
    #[arg(long, env = "KNOLL_ALLOW_SOURCE_CIDR", value_name = "CIDR", value_delimiter = ',', value_parser = parse_range)]
    pub allow_source_cidr: Vec<IpNet>,
    /// Also send credentials of sources over `http://`, which is not encrypted
    #[arg(long, env = "KNOLL_PLAIN_HTTP_CREDENTIALS")]
    pub plain_http_credentials: bool,
}

impl FetchArgs {
    /// The settings of fetches. `local` says whether `file://` sources are read.
    pub fn settings(&self, local: bool) -> FetchSettings {
        let addresses = Addresses::new(&self.allow_source_cidr);
        FetchSettings { local, addresses, plain_http_credentials: self.plain_http_credentials }
    }
}

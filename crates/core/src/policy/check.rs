//! Whether a Workspace, a source or hooks are allowed.

use knoll_api::{
    hooks::Hook,
    pod::PodSettings,
    policy::{AllowRules, AllowedHooks, AllowedTool, SourceType},
    source::{Source, SourceKind, shown_address},
    stack::Stack,
    workspace::{Tool, WorkspaceSpec},
};

use super::{
    Effective, Matched, Violation,
    address::{self, Address},
    image::ImagePattern,
    of_policy,
    pods::HostAccess,
    quoted,
};
use crate::frozen::FrozenJob;

/// The service account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// The fields of a Policy that cannot be read, and why.
pub(super) fn unreadable(allow: &AllowRules) -> Vec<(String, String)> {
    let images = allow.images.iter().flatten().enumerate();
    let read = images.map(|(index, pattern)| (format!("spec.allow.images[{index}]"), ImagePattern::read(pattern)));
    read.filter_map(|(field, read)| Some((field, read.err()?))).collect()
}

/// A tool and its versions, as a message shows them.
pub(super) fn shown_tool(tool: &AllowedTool) -> String {
    let name = tool.name.program();
    if tool.versions.is_empty() { name.to_owned() } else { format!("{name} {}", tool.versions.join(" | ")) }
}

/// The settings of pods that Policies judge.
struct Judged<'a> {
    /// The image that the Workspace names.
    image: Option<&'a str>,
    pod: &'a PodSettings,
    /// Whether Policies supply an account to the pods that name none.
    has_account: bool,
    tool: Tool,
    version: Option<&'a str>,
}

impl Effective {
    /// Everything that a Workspace has and that is not allowed.
    #[must_use]
    pub fn check_workspace(&self, spec: &WorkspaceSpec) -> Vec<Violation> {
        let (image, version) = (spec.image.as_deref(), spec.version.as_deref());
        let own = spec.pod.clone().unwrap_or_default();
        let all = self.pod(&own);
        let pod = Self::own_part(&own, &all);
        let has_account = all.plan_account().is_some() && all.apply_account().is_some();
        self.check_pods(&Judged { image, pod: &pod, has_account, tool: spec.tool, version })
    }

    /// Everything that a frozen job has and that is not allowed. What Policies supplied is not judged if they supply the
    /// same now.
    #[must_use]
    pub fn check_frozen(&self, job: &FrozenJob) -> Vec<Violation> {
        let FrozenJob { pods, inputs, .. } = job;
        let image = pods.image_is_named.then_some(pods.image.as_str());
        let all = &pods.settings;
        let own = pods.own.as_ref().filter(|own| self.pod(own) == *all);
        let pod = own.map_or_else(|| all.clone(), |own| Self::own_part(own, all));
        let has_account = own.is_some() && all.plan_account().is_some() && all.apply_account().is_some();
        self.check_pods(&Judged {
            image,
            pod: &pod,
            has_account,
            tool: inputs.tool,
            version: inputs.version.as_deref(),
        })
    }

    fn check_pods(&self, judged: &Judged<'_>) -> Vec<Violation> {
        let mut found = self.blocking();
        let access = HostAccess::of(judged.pod);
        for rule in &self.rules {
            let mut note = |field: &str, message: String| found.push(violation(rule, field, message));
            for image in judged.image.into_iter().chain(access.images.iter().map(String::as_str)) {
                if let Some(message) = image_refused(&rule.allow, image) {
                    note("images", message);
                }
            }
            if let Some(allowed) = &rule.allow.service_accounts {
                // Pods that name no account have no token, unless a volume brings that of `default`.
                let is_default = !access.tokens.is_empty() && !judged.has_account;
                let unnamed = is_default.then_some(DEFAULT_ACCOUNT);
                let accounts = [judged.pod.plan_account(), judged.pod.apply_account()].into_iter();
                let mut accounts = accounts.filter_map(|account| account.or(unnamed));
                if let Some(account) = accounts.find(|account| !allowed.iter().any(|it| it == account)) {
                    let allowed = quoted(allowed.iter().map(String::as_str));
                    note("serviceAccounts", format!("service account `{account}`; allowed are {allowed}."));
                }
            }
            if let Some(message) = rule.allow.tools.as_deref().and_then(|tools| tool_refused(tools, judged)) {
                note("tools", message);
            }
            if let Some(allowed) = &rule.allow.pod {
                if !allowed.host_path {
                    access.host_path.iter().for_each(|field| note("pod.hostPath", format!("`{field}` is set.")));
                }
                if !allowed.privileged {
                    access.privileged.iter().for_each(|field| note("pod.privileged", format!("`{field}` is set.")));
                }
                for error in &access.unreadable {
                    note("pod", format!("{error}."));
                }
            }
        }
        found
    }

    /// Whether a source is allowed.
    #[must_use]
    pub fn check_source(&self, source: &Source) -> Vec<Violation> {
        let kind = source.kind().map(|kind| match kind {
            SourceKind::ConfigMap(_) => (SourceType::ConfigMap, None),
            SourceKind::Inline(_) => (SourceType::Inline, None),
            SourceKind::Git(git) => (SourceType::Git, Some(git.url.as_str())),
            SourceKind::Archive(archive) => (SourceType::Archive, Some(archive.url.as_str())),
            SourceKind::Bundle(_) => (SourceType::Bundle, None),
        });
        let mut found = Vec::new();
        for rule in &self.rules {
            let Some(allowed) = &rule.allow.sources else { continue };
            let Some((kind, url)) = kind else {
                found.push(violation(rule, "sources", "the source has no kind.".to_owned()));
                continue;
            };
            if let Some(kinds) = allowed.kinds.as_ref().filter(|kinds| !kinds.contains(&kind)) {
                let kinds = quoted(kinds.iter().map(|kind| kind.as_str()));
                let message = format!("a source of the kind `{}`; allowed are {kinds}.", kind.as_str());
                found.push(violation(rule, "sources.kinds", message));
            }
            let (Some(hosts), Some(url)) = (&allowed.hosts, url) else { continue };
            if !Address::read(url).is_some_and(|address| address.is_of(hosts)) {
                let hosts: Vec<String> = hosts.iter().flat_map(address::shown).collect();
                let hosts = quoted(hosts.iter().map(String::as_str));
                let message = format!("{} is at none of {hosts}.", quoted([shown_address(url).as_str()]));
                found.push(violation(rule, "sources.hosts", message));
            }
        }
        found
    }

    /// Whether these hooks are allowed. `of_stack` says whether they are those of the Workspace's Stack.
    #[must_use]
    pub fn check_hooks(&self, hooks: &[Hook], of_stack: bool) -> Vec<Violation> {
        let mut found = Vec::new();
        if hooks.is_empty() {
            return found;
        }
        let named = quoted(hooks.iter().map(|hook| hook.name.as_str()));
        for rule in &self.rules {
            if rule.allow.hooks.is_none() && rule.allow.sources.is_some() && !of_stack {
                let message = format!(
                    "the hooks {named} could run another module than those of `sources`. Leave them out, put them into the Stack, or set `allow.hooks: Any` in the Policy."
                );
                found.push(violation(rule, "sources", message));
            }
            match rule.allow.hooks.unwrap_or_default() {
                AllowedHooks::None => {
                    let message = format!("the hooks {named}; none are allowed, leave `hooks` out.");
                    found.push(violation(rule, "hooks", message));
                }
                AllowedHooks::Stack if !of_stack => {
                    let message = format!(
                        "the hooks {named} are not those of the Workspace's Stack. Leave them out, or put them into the Stack."
                    );
                    found.push(violation(rule, "hooks", message));
                }
                AllowedHooks::Stack | AllowedHooks::Any => {}
            }
            for image in hooks.iter().filter_map(|hook| hook.image.as_ref()) {
                found.extend(image_refused(&rule.allow, image).map(|message| violation(rule, "images", message)));
            }
        }
        found
    }

    /// Everything that a Stack has and that is not allowed.
    #[must_use]
    pub fn check_stack(&self, stack: &Stack) -> Vec<Violation> {
        let mut found = self.check_workspace(&stack.spec.workspace);
        found.extend(self.check_source(&stack.spec.source));
        found.extend(self.check_hooks(&stack.spec.hooks, true));
        found
    }

    /// The Policies that do not allow a Run to change the infrastructure of a Stack that has not started it.
    #[must_use]
    pub fn check_stack_override(&self) -> Vec<Violation> {
        let message = "the Workspace belongs to a Stack that has not started the Run. Leave `overrideStack` out.";
        let forbidding = self.rules.iter().filter(|rule| rule.allow.stack_override == Some(false));
        forbidding.map(|rule| violation(rule, "stackOverride", message.to_owned())).collect()
    }

    /// The Policies that restrict sources do not allow a snapshot that no Stack has made: nobody knows its source.
    #[must_use]
    pub fn check_foreign_snapshot(&self) -> Vec<Violation> {
        let message = "the Run has a snapshot, and no Stack has started it. Leave `snapshot` out.";
        let restricting = self.rules.iter().filter(|rule| rule.allow.sources.is_some());
        restricting.map(|rule| violation(rule, "sources", message.to_owned())).collect()
    }
}

fn violation(rule: &Matched, field: &str, message: String) -> Violation {
    Violation { from: of_policy(&rule.policy), field: format!("spec.allow.{field}"), message }
}

fn image_refused(allow: &AllowRules, image: &str) -> Option<String> {
    let patterns = allow.images.as_ref()?;
    let is_allowed = |pattern: &String| ImagePattern::read(pattern).is_ok_and(|pattern| pattern.matches(image));
    (!patterns.iter().any(is_allowed)).then(|| {
        let allowed = quoted(patterns.iter().map(String::as_str));
        format!("image {}; allowed are {allowed}.", quoted([image]))
    })
}

fn tool_refused(tools: &[AllowedTool], judged: &Judged<'_>) -> Option<String> {
    let shown: Vec<String> = tools.iter().map(shown_tool).collect();
    let allowed = quoted(shown.iter().map(String::as_str));
    let mut of_name = tools.iter().filter(|tool| tool.name == judged.tool).peekable();
    if of_name.peek().is_none() {
        return Some(format!("tool `{}`; allowed are {allowed}.", judged.tool.program()));
    }
    let fits = |tool: &AllowedTool| match judged.version {
        _ if tool.versions.is_empty() => true,
        Some(version) => tool.versions.iter().any(|pattern| is_version(pattern, version)),
        None => false,
    };
    if of_name.any(fits) {
        return None;
    }
    Some(match judged.version {
        Some(version) => format!("{} {version}; allowed are {allowed}.", judged.tool.program()),
        None => format!("the Workspace names no version; set `version` to one of {allowed}."),
    })
}

/// Whether a version is the pattern, or begins as the pattern does before its `*`.
fn is_version(pattern: &str, version: &str) -> bool {
    match pattern.strip_suffix('*') {
        // The pattern ends in `.*`, so `1.1.*` is not the beginning of `1.11.0`.
        Some(prefix) => prefix.ends_with('.') && version.starts_with(prefix),
        None => pattern == version,
    }
}

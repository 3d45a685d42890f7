//! The ValidatingAdmissionPolicies that refuse at `kubectl apply` what `spec.allow` of a Policy does not allow.
//!
//! Each is evaluated once for every Policy of the cluster, which it sees as `params`.
//!
//! *Guarantees.* Only what the operator would refuse is refused, and only where the object, its namespace and the Policy
//! are enough to know that; the operator decides everything else. An expression that has no value decides nothing. A rule
//! looks at an object only when the fields of the rule change, so an object that breaks a rule can still be suspended,
//! labelled and deleted.

use k8s_openapi::api::admissionregistration::v1::{Validation, Variable};
use knoll_api::names::{GROUP, label};

use super::{Policy, forbidden, variable};

/// The kinds of objects that Policies restrict.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Workspace,
    Stack,
    Run,
}

/// One rule of a Policy.
struct Rule {
    /// The field of the Policy, below `spec.allow`.
    field: &'static str,
    /// The fields of the object that the rule looks at, below `object.`.
    fields: Vec<String>,
    /// The values that are not allowed, as a list of strings.
    refused: String,
    /// What is not allowed and what is, as an expression; it is evaluated only if there are such values.
    message: String,
    /// The last sentence of the message: how to satisfy the rule.
    advice: &'static str,
}

/// One policy a kind. `operator` is the username of the operator, which decides about its own objects itself.
pub(super) fn policies(operator: &str) -> [Policy; 3] {
    [Kind::Workspace, Kind::Stack, Kind::Run].map(|kind| policy(kind, operator))
}

fn policy(kind: Kind, operator: &str) -> Policy {
    let (name, resource, operations): (_, _, &[_]) = match kind {
        Kind::Workspace => ("knoll-allowed-workspaces", "workspaces", &["CREATE", "UPDATE"]),
        Kind::Stack => ("knoll-allowed-stacks", "stacks", &["CREATE", "UPDATE"]),
        // The spec of a Run is immutable.
        Kind::Run => ("knoll-allowed-runs", "runs", &["CREATE"]),
    };
    let mut conditions = vec![("not-the-operator", format!("request.userInfo.username != '{operator}'"))];
    if kind != Kind::Run {
        let changes = "oldObject == null || (!has(object.metadata.deletionTimestamp) && object.spec != oldObject.spec)";
        conditions.push(("spec-changes", changes.to_owned()));
    }
    let mut variables = vec![
        variable("namespaceLabels", "namespaceObject.metadata.?labels.orValue({})"),
        variable("labels", &labels(kind)),
        variable(
            "selected",
            &format!(
                "{} && {}",
                selects("namespaceSelector", "variables.namespaceLabels", "true"),
                selects("workspaceSelector", "variables.labels", &all_labels_known(kind))
            ),
        ),
    ];
    if kind != Kind::Run {
        variables.push(variable("settings", settings(kind)));
    }
    variables.extend(images(kind));
    if kind != Kind::Workspace {
        variables.extend(address());
    }
    Policy {
        name,
        group: GROUP,
        resource,
        operations,
        conditions,
        variables,
        validations: rules(kind).iter().map(|rule| rule.validation(kind)).collect(),
        per_policy: true,
    }
}

/// The labels of the Workspace, as far as the object tells them.
///
/// Those of a Stack count for its Workspace, and go before the Workspace's own.
fn labels(kind: Kind) -> String {
    let own = "object.metadata.?labels.orValue({})";
    match kind {
        Kind::Workspace => format!("'{}' in {own} ? {{}} : {own}", label::STACK),
        Kind::Stack => own.to_owned(),
        Kind::Run => "{}".to_owned(),
    }
}

/// Whether the Workspace has no other labels than those that the object tells.
fn all_labels_known(kind: Kind) -> String {
    match kind {
        Kind::Workspace => format!("!('{}' in object.metadata.?labels.orValue({{}}))", label::STACK),
        Kind::Stack | Kind::Run => "false".to_owned(),
    }
}

/// Whether a selector of the Policy is known to select an object with these labels; `complete` says whether it has no
/// others. An absent selector selects all.
fn selects(selector: &str, labels: &str, complete: &str) -> String {
    let selector = format!("params.spec.?{selector}");
    let absent = format!("({complete} && !(wanted.key in {labels}))");
    let listed = format!("{labels}[wanted.key] in wanted.values");
    let has = format!("wanted.key in {labels}");
    format!(
        "{selector}.?matchLabels.orValue({{}}).all(key, key in {labels} && {labels}[key] == {selector}.?matchLabels.orValue({{}})[key]) \
         && {selector}.?matchExpressions.orValue([]).all(wanted, \
         wanted.operator == 'In' ? {has} && {listed} : \
         wanted.operator == 'NotIn' ? {absent} || ({has} && !({listed})) : \
         wanted.operator == 'Exists' ? {has} : wanted.operator == 'DoesNotExist' && {absent})"
    )
}

/// The settings of the Workspace. The schema does not know all of their fields.
fn settings(kind: Kind) -> &'static str {
    match kind {
        Kind::Workspace | Kind::Run => "dyn(object.spec)",
        Kind::Stack => "dyn(object.spec.?workspace.orValue({}))",
    }
}

/// A field of the Workspace's settings, as an optional.
fn setting(field: &str) -> String {
    format!("variables.settings.?{field}")
}

/// The same field, below `object.`.
fn setting_path(kind: Kind, field: &str) -> String {
    match kind {
        Kind::Stack => format!("spec.?workspace.?{field}"),
        Kind::Workspace | Kind::Run => format!("spec.?{field}"),
    }
}

const HOOKS: &str = "object.spec.?hooks.orValue([])";

/// The images that the object names, the patterns of the Policy, and the images that none of them matches.
fn images(kind: Kind) -> Vec<Variable> {
    let mut lists = Vec::new();
    if kind != Kind::Run {
        lists.push(format!("[{}.orValue('')]", setting("image")));
        let volumes = setting("pod.?volumes");
        lists.push(format!("{volumes}.orValue([]).map(volume, volume.?image.?reference.orValue(''))"));
    }
    if kind != Kind::Workspace {
        lists.push(format!("{HOOKS}.map(hook, hook.?image.orValue(''))"));
    }
    let named = format!("({}).filter(image, image != '')", lists.join(" + "));
    // A pattern keeps the slash before its `*`, by which it is known as one of a folder.
    let patterns = "params.spec.?allow.?images.orValue([])\
        .map(image, image.endsWith('/*') ? image.substring(0, image.size() - 1) : image)";
    let matches = "pattern[0].endsWith('/') ? image[0].startsWith(pattern[0]) : image[0] == pattern[0] \
        && (pattern[1] == '' || pattern[1] == image[1]) \
        && (pattern[2] == '' ? pattern[1] == '' || image[2] == '' : pattern[2] == image[2])";
    vec![
        variable("images", &in_full(&named)),
        variable("patterns", &in_full(patterns)),
        variable(
            "refusedImages",
            &format!(
                "variables.images.filter(image, !variables.patterns.exists(pattern, {matches})).map(image, image[3])"
            ),
        ),
    ]
}

/// References of images as lists of four texts: the repository written out in full as a container runtime does it, the
/// tag, the digest, and the reference as it was.
fn in_full(references: &str) -> String {
    let repository = "name.find('^([^@]*/)?[^/:@]*')";
    let with_registry = "part[0].matches('^([^/]*[.:][^/]*|localhost)/') ? \
        part[0].find('^[^/]*').lowerAscii() + part[0].find('/.*') : 'docker.io/' + part[0]";
    let one_registry = "part[0].matches('^(index|registry-1)[.]docker[.]io/') ? \
        'docker.io' + part[0].find('/.*') : part[0]";
    let with_folder = "part[0].matches('^docker[.]io/[^/]+$') ? \
        'docker.io/library' + part[0].find('/.*') : part[0]";
    format!(
        "{references}.map(name, string(name)).map(name, [{repository}, name, name])\
         .map(part, [{with_registry}, part[1].substring(part[0].size()), part[2]])\
         .map(part, [{one_registry}, part[1], part[2]])\
         .map(part, [{with_folder}, part[1].find('^:[^@]*'), part[1].find('@.*'), part[2]])"
    )
}

/// The parts of the address of a source: host and path, as `core::policy` compares them.
fn address() -> Vec<Variable> {
    let source = "object.spec.?source";
    let default_port = "(variables.url.startsWith('https:') && variables.authority.endsWith(':443')) \
        || (variables.url.startsWith('http:') && variables.authority.endsWith(':80')) \
        || (variables.url.startsWith('ssh:') && variables.authority.endsWith(':22')) \
        || (variables.url.startsWith('git:') && variables.authority.endsWith(':9418'))";
    vec![
        variable("url", &format!("{source}.?git.?url.or({source}.?archive.?url).orValue('')")),
        variable(
            "rest",
            "variables.url.contains('://') ? variables.url.substring(variables.url.indexOf('://') + 3) : ''",
        ),
        variable(
            "authority",
            "(variables.rest != '' ? variables.rest.find('^[^/?#]*') : variables.url.find('^[^:]*')).find('[^@]*$').lowerAscii()",
        ),
        variable("host", &format!("{default_port} ? variables.authority.find('^[^:]*') : variables.authority")),
        // The path of `user@host:path` begins at the home folder of the user; to a Policy it is one of the host.
        variable(
            "path",
            "variables.rest != '' ? variables.rest.find('^[^/?#]*/[^?#]*').find('/.*') : '/' + variables.url.find(':.*').find('[^:/].*')",
        ),
    ]
}

/// The rules that are decided for a kind.
fn rules(kind: Kind) -> Vec<Rule> {
    let mut rules = vec![allowed_images(kind)];
    if kind != Kind::Run {
        rules.extend([accounts(kind), tools(kind), host_path(kind), privileged(kind)]);
    }
    if kind != Kind::Workspace {
        rules.extend([source_kinds(), source_hosts(), hooks()]);
    }
    rules
}

fn allowed_images(kind: Kind) -> Rule {
    let mut fields = Vec::new();
    if kind != Kind::Run {
        fields.extend([setting_path(kind, "image"), setting_path(kind, "pod.?volumes")]);
    }
    if kind != Kind::Workspace {
        fields.push("spec.?hooks".to_owned());
    }
    Rule {
        field: "images",
        fields,
        refused: "variables.refusedImages".to_owned(),
        message: format!(
            "'image `' + variables.refusedImages[0] + '`; allowed are ' + {}",
            listed("params.spec.allow.images")
        ),
        advice: "Use an image that is allowed.",
    }
}

fn accounts(kind: Kind) -> Rule {
    let common = setting("pod.?serviceAccountName");
    let of =
        |stage: &str| format!("{}.or({common}).orValue('')", setting(&format!("pod.?{stage}.?serviceAccountName")));
    let refused = format!(
        "[{}, {}].filter(name, name != '' && !(name in params.spec.allow.serviceAccounts))",
        of("plan"),
        of("apply")
    );
    Rule {
        field: "serviceAccounts",
        fields: ["pod.?serviceAccountName", "pod.?plan", "pod.?apply"].map(|field| setting_path(kind, field)).into(),
        message: format!(
            "'service account `' + {refused}[0] + '`; allowed are ' + {}",
            listed("params.spec.allow.serviceAccounts")
        ),
        refused,
        advice: "Use a service account that is allowed.",
    }
}

fn tools(kind: Kind) -> Rule {
    let (tool, version) = (setting("tool"), setting("version"));
    let (tool, version) = (format!("{tool}.orValue('terraform')"), format!("{version}.orValue('')"));
    let fits = format!(
        "allowed.?versions.orValue([]).size() == 0 || ({version} != '' && allowed.versions.exists(pattern, \
         pattern == {version} || (pattern.endsWith('.*') && {version}.startsWith(pattern.substring(0, pattern.size() - 1)))))"
    );
    let shown = "params.spec.allow.tools.map(allowed, \
        allowed.?versions.orValue([]).size() == 0 ? allowed.name : allowed.name + ' ' + allowed.versions.join(' | '))";
    Rule {
        field: "tools",
        fields: ["tool", "version"].map(|field| setting_path(kind, field)).into(),
        refused: format!(
            "[{tool}].filter(tool, !params.spec.allow.tools.exists(allowed, allowed.name == tool && ({fits})))"
        ),
        message: format!(
            "({version} == '' ? {tool} + ' without a version' : {tool} + ' ' + {version}) + '; allowed are ' + {}",
            listed(shown)
        ),
        advice: "Set `tool` and `version` to ones that are allowed.",
    }
}

fn host_path(kind: Kind) -> Rule {
    let refused = format!(
        "{}.orValue([]).filter(volume, params.spec.allow.pod.?hostPath.orValue(false) != true \
         && volume.?hostPath.orValue(null) != null).map(volume, volume.name)",
        setting("pod.?volumes")
    );
    Rule {
        field: "pod.hostPath",
        fields: vec![setting_path(kind, "pod.?volumes")],
        message: format!("'`pod.volumes[' + {refused}[0] + '].hostPath` is set'"),
        refused,
        advice: "Use a volume of another kind.",
    }
}

/// The settings that loosen the isolation of a container, as `core::policy` knows them.
fn privileged(kind: Kind) -> Rule {
    let pod = |field: &str| setting(&format!("pod.?securityContext.?{field}"));
    let container = |field: &str| setting(&format!("pod.?containerSecurityContext.?{field}"));
    let annotations = format!("{}.orValue({{}})", setting("pod.?annotations"));
    let is = |field: String, value: &str| format!("{field}.orValue(null) == {value}");
    let is_set = |field: String| format!("{field}.orValue(null) != null");
    let has_items = |field: String| format!("{field}.orValue([]).size() > 0");
    let rows = [
        ("securityContext.windowsOptions.hostProcess", is(pod("windowsOptions.?hostProcess"), "true")),
        ("securityContext.seccompProfile", is(pod("seccompProfile.?type"), "'Unconfined'")),
        ("securityContext.appArmorProfile", is(pod("appArmorProfile.?type"), "'Unconfined'")),
        ("securityContext.seLinuxOptions", is_set(pod("seLinuxOptions"))),
        ("securityContext.sysctls", has_items(pod("sysctls"))),
        ("containerSecurityContext.privileged", is(container("privileged"), "true")),
        ("containerSecurityContext.capabilities.add", has_items(container("capabilities.?add"))),
        ("containerSecurityContext.procMount", format!("{}.orValue('Default') != 'Default'", container("procMount"))),
        ("containerSecurityContext.windowsOptions.hostProcess", is(container("windowsOptions.?hostProcess"), "true")),
        ("containerSecurityContext.seccompProfile", is(container("seccompProfile.?type"), "'Unconfined'")),
        ("containerSecurityContext.appArmorProfile", is(container("appArmorProfile.?type"), "'Unconfined'")),
        ("containerSecurityContext.seLinuxOptions", is_set(container("seLinuxOptions"))),
        (
            "annotations",
            format!(
                "{annotations}.exists(key, key.startsWith('container.apparmor.security.beta.kubernetes.io/') \
                 && {annotations}[key] == 'unconfined')"
            ),
        ),
    ];
    let found: Vec<String> = rows.iter().map(|(field, set)| format!("({set} ? ['pod.{field}'] : [])")).collect();
    let found = format!("({})", found.join(" + "));
    Rule {
        field: "pod.privileged",
        fields: ["securityContext", "containerSecurityContext", "annotations"]
            .map(|field| setting_path(kind, &format!("pod.?{field}")))
            .into(),
        refused: format!("{found}.filter(field, params.spec.allow.pod.?privileged.orValue(false) != true)"),
        message: format!("'`' + {found}[0] + '` is set'"),
        advice: "Remove the setting.",
    }
}

fn source_kinds() -> Rule {
    let kinds = ["configMap", "inline", "git", "archive", "bundle"];
    let found = kinds.map(|kind| format!("(has(object.spec.source.{kind}) ? ['{kind}'] : [])")).join(" + ");
    let refused =
        format!("(has(object.spec.source) ? {found} : []).filter(kind, !(kind in params.spec.allow.sources.kinds))");
    Rule {
        field: "sources.kinds",
        fields: vec!["spec.?source".to_owned()],
        message: format!(
            "'a source of the kind `' + {refused}[0] + '`; allowed are ' + {}",
            listed("params.spec.allow.sources.kinds")
        ),
        refused,
        advice: "Use a source of another kind.",
    }
}

fn source_hosts() -> Rule {
    let below = "(variables.path + '/').startsWith(path.endsWith('/') ? path : path + '/')";
    let is_allowed = format!(
        "!variables.path.matches('%|;|//|/[.][.]?(/|$)') && params.spec.allow.sources.hosts.exists(allowed, \
         allowed.host == variables.host && (allowed.?paths.orValue([]).size() == 0 || allowed.paths.exists(path, {below})))"
    );
    Rule {
        field: "sources.hosts",
        fields: vec!["spec.?source".to_owned()],
        refused: format!("[variables.url].filter(url, url != '' && !({is_allowed}))"),
        message: format!(
            "'`' + variables.url + '` is at none of ' + {}",
            listed("params.spec.allow.sources.hosts.map(allowed, allowed.host)")
        ),
        advice: "Use an address on a host, and below a path, that is allowed.",
    }
}

/// Whether the hooks of a Run are those of its Stack is for the operator to know.
fn hooks() -> Rule {
    Rule {
        field: "hooks",
        fields: vec!["spec.?hooks".to_owned()],
        refused: format!("{HOOKS}.filter(hook, params.spec.allow.hooks == 'None').map(hook, hook.name)"),
        message: format!("'there are hooks, such as `' + {HOOKS}[0].name + '`'"),
        advice: "Leave the hooks out.",
    }
}

impl Rule {
    fn validation(&self, kind: Kind) -> Validation {
        let Self { field, fields, refused, message, advice } = self;
        // `pod.hostPath` restricts when `pod` is there: what it does not set is not allowed.
        let given = field.strip_suffix(".hostPath").or(field.strip_suffix(".privileged")).unwrap_or(field);
        let given = format!("params.spec.?allow.?{}.hasValue()", given.replace('.', ".?"));
        let unchanged = match kind {
            Kind::Run => String::new(),
            Kind::Workspace | Kind::Stack => {
                let same: Vec<String> =
                    fields.iter().map(|field| format!("object.{field} == oldObject.{field}")).collect();
                format!(" || (oldObject != null && {})", same.join(" && "))
            }
        };
        forbidden(
            &format!("!{given} || !variables.selected{unchanged} || {refused}.size() == 0"),
            &format!(
                "a Policy does not allow it (spec.allow.{field}). {advice} `kubectl get policies.knoll.dev` shows the Policies."
            ),
            &format!(
                "'Policy `' + params.metadata.name + '` does not allow it (spec.allow.{field}): ' + {message} + '. {advice}'"
            ),
        )
    }
}

/// The number of values that a message lists.
const LISTED: usize = 8;

/// The values of a list in a message. A long list is left to the Policy.
fn listed(list: &str) -> String {
    format!(
        "({list}.size() == 0 ? 'none' : {list}.size() > {LISTED} ? 'those of the Policy' : '`' + {list}.join('`, `') + '`')"
    )
}

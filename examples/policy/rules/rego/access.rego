# Nobody gets every action on every resource, and people who leave are not forgotten in a policy.
package access

violation_wildcard contains {"msg": msg, "resource": change.address} if {
	some change in input.resource_changes
	change.type == "aws_iam_policy"
	some statement in statements(change)
	statement.Effect == "Allow"
	"*" in list(statement.Action)
	"*" in list(statement.Resource)
	msg := "the policy allows every action on every resource"
}

warn_users contains msg if {
	users := [change.address | some change in input.resource_changes; change.type == "aws_iam_user"]
	count(users) > 0
	msg := sprintf("users with keys of their own: %s", [concat(", ", sort(users))])
}

statements(change) := list(json.unmarshal(change.change.after.policy).Statement)

list(value) := value if is_array(value)

list(value) := [value] if not is_array(value)

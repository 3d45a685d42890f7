# Security groups are not open to the world, except for the web's own ports.
package main

import rego.v1

web_ports := {80, 443}

world := {"0.0.0.0/0", "::/0"}

open_rules contains {"address": change.address, "from": rule.from_port, "to": rule.to_port} if {
	some change in input.resource_changes
	change.type == "aws_security_group"
	some rule in change.change.after.ingress
	some block in rule.cidr_blocks
	block in world
}

deny contains {"msg": msg, "address": rule.address} if {
	some rule in open_rules
	not only_web(rule)
	msg := sprintf("ports %d to %d are open to the world", [rule.from, rule.to])
}

warn contains {"msg": msg, "address": rule.address} if {
	some rule in open_rules
	only_web(rule)
	msg := sprintf("port %d is open to the world", [rule.from])
}

only_web(rule) if {
	rule.from == rule.to
	rule.from in web_ports
}

# Buckets are private, and those that hold data are encrypted. In the syntax of Rego before version 1.
package terraform.storage

buckets[change] {
	change := input.resource_changes[_]
	change.type == "aws_s3_bucket"
	change.change.actions[_] == "create"
}

deny[msg] {
	bucket := buckets[_]
	startswith(bucket.change.after.acl, "public")
	msg := sprintf("%s is public: set acl to private", [bucket.address])
}

require_approval[msg] {
	bucket := buckets[_]
	not has_key(bucket)
	msg := sprintf("%s has no key of its own", [bucket.address])
}

has_key(bucket) {
	encryption := bucket.change.after.server_side_encryption_configuration[_]
	encryption.rule[_].apply_server_side_encryption_by_default[_].kms_master_key_id != ""
}

# What infra/idempotency.yaml deploys, as Terraform's own resources. Each is named as there, in snake case; what SAM makes of a function's
# events is named as SAM does. This file and functions.tf are written by hand, and a test compares all files with the template.

variable "name" {
  description = "Begins the name of each resource, as a stack's name does. Each module of an account and Region needs its own: alarms of one name overwrite each other."
  type        = string
  nullable    = false

  validation {
    # What Terraform adds to a queue's name must fit into 80 characters.
    condition     = can(regex("^[A-Za-z][A-Za-z0-9-]{0,19}$", var.name))
    error_message = "name must have 1 to 20 letters, digits and hyphens, and begin with a letter."
  }
}

variable "stale_zip" {
  description = "Path of the zip of the function `stale`, for arm64: a file of the release, or of `cargo lambda build --release --arm64 --output-format zip`."
  type        = string
  nullable    = false
}

variable "outbox_zip" {
  description = "The same for the function `outbox`. Needed if outbox is \"on\"."
  type        = string
  default     = null

  validation {
    condition     = var.outbox != "on" || var.outbox_zip != null
    error_message = "outbox_zip is needed if outbox is \"on\"."
  }
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.region
}

# One item per operation, and further items for bodies that are too large for it.
resource "aws_dynamodb_table" "idempotency_table" {
  count                       = local.makes_table ? 1 : 0
  name                        = "${var.name}-records"
  billing_mode                = "PAY_PER_REQUEST"
  deletion_protection_enabled = var.deletion_protection
  hash_key                    = "pk"
  range_key                   = "sk"
  stream_enabled              = true
  stream_view_type            = "NEW_AND_OLD_IMAGES"

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  attribute {
    name = "reconcile_shard"
    type = "S"
  }

  attribute {
    name = "reconcile_place"
    type = "S"
  }

  # Only records with an unknown outcome carry its attributes, so no other write pays for it.
  global_secondary_index {
    name            = "reconcile"
    hash_key        = "reconcile_shard"
    range_key       = "reconcile_place"
    projection_type = "ALL"
  }

  # Only settled records carry the attribute, so nothing unsettled is ever deleted.
  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  # Under the account's key for DynamoDB, so that CloudTrail records its use.
  server_side_encryption {
    enabled = true
  }

  # A lost record is an effect that may happen twice.
  lifecycle {
    prevent_destroy = true
  }
}

# The stack of `../template.yaml` for Terraform: `docs/terraform.md` of the library says how to use it, the template's comments give the reasons.

terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

data "aws_caller_identity" "current" {}

locals {
  # What `cargo lambda build --release --arm64 --output-format zip --workspace` makes.
  zips          = "${path.module}/../target/lambda"
  is_closed     = var.stopped || var.closed
  alarm_actions = var.alarm_topic_arn == "" ? null : [var.alarm_topic_arn]
}

# Table, queues, alarms, and the functions `stale` and `outbox`: a copy of the library's `infra/terraform`.
module "idempotency" {
  source                = "../infra/terraform"
  name                  = var.name
  stale_zip             = "${local.zips}/stale/bootstrap.zip"
  outbox_zip            = "${local.zips}/outbox/bootstrap.zip"
  existing_table_name   = var.existing_table_name
  existing_table_stream = var.existing_table_stream
  stopped               = var.stopped
  metrics_namespace     = "lambda-idempotency/${var.name}"
  alarm_topic_arn       = var.alarm_topic_arn
  # What is published, and who gets it. Each target needs a right in `outbox_targets`.
  outbox_topics = "order.placed=${aws_sqs_queue.billing_queue.url}"
  # Of few requests, each that fails counts.
  store_errors_tolerated             = 0
  transactions_unconfirmed_tolerated = 0
}


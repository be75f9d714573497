# Made from infra/idempotency.yaml, whose comments give the reasons. Do not edit it.

resource "aws_sqs_queue" "checks_queue" {
  name = "${var.name}-checks"
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters_queue.arn
    maxReceiveCount     = 5
  })
  sqs_managed_sse_enabled    = true
  visibility_timeout_seconds = 360
}

resource "aws_sqs_queue" "contradictions_queue" {
  name_prefix               = "${var.name}-contradictions-"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_sqs_queue_redrive_allow_policy" "contradictions_queue" {
  queue_url = aws_sqs_queue.contradictions_queue.url
  redrive_allow_policy = jsonencode({
    redrivePermission = "denyAll"
  })
}

resource "aws_sqs_queue" "dead_letters_queue" {
  name_prefix               = "${var.name}-dead-letters-"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_sqs_queue_redrive_allow_policy" "dead_letters_queue" {
  queue_url = aws_sqs_queue.dead_letters_queue.url
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.checks_queue.arn, aws_sqs_queue.reconcile_queue.arn, aws_sqs_queue.sweep_queue.arn]
  })
}

resource "aws_sqs_queue" "deferred_reports_dead_letters_queue" {
  name_prefix               = "${var.name}-deferred-reports-dead-letters-"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_sqs_queue_redrive_allow_policy" "deferred_reports_dead_letters_queue" {
  queue_url = aws_sqs_queue.deferred_reports_dead_letters_queue.url
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.deferred_reports_queue.arn]
  })
}

resource "aws_sqs_queue" "deferred_reports_queue" {
  name_prefix               = "${var.name}-deferred-reports-"
  message_retention_seconds = 604800
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.deferred_reports_dead_letters_queue.arn
    maxReceiveCount     = 400
  })
  sqs_managed_sse_enabled    = true
  visibility_timeout_seconds = 300

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_sqs_queue" "failed_runs_queue" {
  message_retention_seconds = 1209600
  name                      = "${var.name}-failed-runs"
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue" "outbox_dead_letters_queue" {
  count                     = local.has_outbox ? 1 : 0
  name_prefix               = "${var.name}-outbox-dead-letters-"
  fifo_queue                = true
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_sqs_queue_redrive_allow_policy" "outbox_dead_letters_queue" {
  count     = local.has_outbox ? 1 : 0
  queue_url = aws_sqs_queue.outbox_dead_letters_queue[0].url
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.outbox_queue[0].arn]
  })
}

resource "aws_sqs_queue" "outbox_queue" {
  count                 = local.has_outbox ? 1 : 0
  deduplication_scope   = "messageGroup"
  fifo_queue            = true
  fifo_throughput_limit = "perMessageGroupId"
  name                  = "${var.name}-outbox.fifo"
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.outbox_dead_letters_queue[0].arn
    maxReceiveCount     = 1000
  })
  sqs_managed_sse_enabled    = true
  visibility_timeout_seconds = 180
}

resource "aws_sqs_queue" "reconcile_queue" {
  name = "${var.name}-reconcile"
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters_queue.arn
    maxReceiveCount     = 5
  })
  sqs_managed_sse_enabled    = true
  visibility_timeout_seconds = 300
}

resource "aws_sqs_queue" "sweep_queue" {
  name = "${var.name}-sweep"
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters_queue.arn
    maxReceiveCount     = 5
  })
  sqs_managed_sse_enabled    = true
  visibility_timeout_seconds = 360
}

resource "aws_sqs_queue" "work_dead_letters_queue" {
  count                     = local.has_outbox ? 1 : 0
  name_prefix               = "${var.name}-work-dead-letters-"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_sqs_queue_redrive_allow_policy" "work_dead_letters_queue" {
  count     = local.has_outbox ? 1 : 0
  queue_url = aws_sqs_queue.work_dead_letters_queue[0].url
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.work_queue[0].arn]
  })
}

resource "aws_sqs_queue" "work_queue" {
  count                     = local.has_outbox ? 1 : 0
  message_retention_seconds = 1209600
  name                      = "${var.name}-work"
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.work_dead_letters_queue[0].arn
    maxReceiveCount     = 1000
  })
  sqs_managed_sse_enabled    = true
  visibility_timeout_seconds = var.work_visibility_seconds
}

resource "aws_sqs_queue_policy" "checks_queue_policy" {
  queue_url = aws_sqs_queue.checks_queue.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.checks_queue.arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "contradictions_queue_policy" {
  queue_url = aws_sqs_queue.contradictions_queue.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.contradictions_queue.arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "dead_letters_queue_policy" {
  queue_url = aws_sqs_queue.dead_letters_queue.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.dead_letters_queue.arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "deferred_reports_dead_letters_queue_policy" {
  queue_url = aws_sqs_queue.deferred_reports_dead_letters_queue.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.deferred_reports_dead_letters_queue.arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "deferred_reports_queue_policy" {
  queue_url = aws_sqs_queue.deferred_reports_queue.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.deferred_reports_queue.arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "failed_runs_queue_policy" {
  queue_url = aws_sqs_queue.failed_runs_queue.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.failed_runs_queue.arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "outbox_dead_letters_queue_policy" {
  count     = local.has_outbox ? 1 : 0
  queue_url = aws_sqs_queue.outbox_dead_letters_queue[0].url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.outbox_dead_letters_queue[0].arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "outbox_queue_policy" {
  count     = local.has_outbox ? 1 : 0
  queue_url = aws_sqs_queue.outbox_queue[0].url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.outbox_queue[0].arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "reconcile_queue_policy" {
  queue_url = aws_sqs_queue.reconcile_queue.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.reconcile_queue.arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "sweep_queue_policy" {
  queue_url = aws_sqs_queue.sweep_queue.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.sweep_queue.arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "work_dead_letters_queue_policy" {
  count     = local.has_outbox ? 1 : 0
  queue_url = aws_sqs_queue.work_dead_letters_queue[0].url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.work_dead_letters_queue[0].arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_sqs_queue_policy" "work_queue_policy" {
  count     = local.has_outbox ? 1 : 0
  queue_url = aws_sqs_queue.work_queue[0].url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = aws_sqs_queue.work_queue[0].arn
        Sid       = "EncryptedTransportOnly"
      },
    ]
    Version = "2012-10-17"
  })
}

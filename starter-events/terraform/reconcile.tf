# Asks the provider about what is unknown.

# Asks the provider about what is unknown, and writes deferred reports.
resource "aws_lambda_function" "reconcile_function" {
  function_name    = "${var.name}-reconcile"
  filename         = "${local.zips}/reconcile/bootstrap.zip"
  source_code_hash = filebase64sha256("${local.zips}/reconcile/bootstrap.zip")
  handler          = "bootstrap"
  runtime          = "provided.al2023"
  architectures    = ["arm64"]
  memory_size      = 256
  # At most a sixth of the queues' visibility time-out.
  timeout                        = 50
  role                           = aws_iam_role.reconcile_role.arn
  reserved_concurrent_executions = var.stopped ? 0 : -1

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.reconcile_logs.name
  }

  environment {
    variables = {
      METRICS_NAMESPACE                       = module.idempotency.metrics_namespace
      IDEMPOTENCY_TABLE                       = module.idempotency.table_name
      ORDERS_TABLE                            = aws_dynamodb_table.orders_table.name
      PROVIDER_URL                            = var.provider_url
      DEFERRED_REPORTS_QUEUE_URL              = module.idempotency.deferred_reports_queue_url
      CONTRADICTIONS_QUEUE_URL                = module.idempotency.contradictions_queue_url
      RECONCILE_QUEUE_URL                     = module.idempotency.reconcile_queue_url
      DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL = module.idempotency.deferred_reports_dead_letters_queue_url
    }
  }

  # Lambda refuses an event source mapping, and a destination, if the role may not use it.
  depends_on = [aws_iam_role_policy.reconcile_role]
}

# The next poll does the same work.
resource "aws_lambda_function_event_invoke_config" "reconcile_function_event_invoke_config" {
  function_name                = aws_lambda_function.reconcile_function.function_name
  qualifier                    = "$LATEST"
  maximum_retry_attempts       = 0
  maximum_event_age_in_seconds = 60

  destination_config {
    on_failure {
      destination = module.idempotency.failed_runs_queue_arn
    }
  }
}

resource "aws_lambda_event_source_mapping" "reconcile_function_messages" {
  function_name           = aws_lambda_function.reconcile_function.arn
  event_source_arn        = module.idempotency.reconcile_queue_arn
  enabled                 = !var.stopped
  batch_size              = 10
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = 2
  }
}

resource "aws_lambda_event_source_mapping" "reconcile_function_deferred_reports" {
  function_name           = aws_lambda_function.reconcile_function.arn
  event_source_arn        = module.idempotency.deferred_reports_queue_arn
  enabled                 = !var.stopped
  batch_size              = 10
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = 2
  }
}

resource "aws_scheduler_schedule" "reconcile_function_poll" {
  name                = "${var.name}-poll"
  schedule_expression = "rate(1 minute)"
  state               = var.stopped ? "DISABLED" : "ENABLED"

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = aws_lambda_function.reconcile_function.arn
    role_arn = aws_iam_role.schedules_role.arn
    input    = "{\"job\":\"poll\"}"

    retry_policy {
      maximum_retry_attempts       = 0
      maximum_event_age_in_seconds = 60
    }

    # For a poll that could not even begin, because the function or a permission is missing.
    dead_letter_config {
      arn = module.idempotency.failed_runs_queue_arn
    }
  }

  depends_on = [aws_iam_role_policy.schedules_role]
}

resource "aws_iam_role" "reconcile_role" {
  name_prefix = "${var.name}-reconcile-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "lambda.amazonaws.com" }
        Action    = "sts:AssumeRole"
      },
    ]
  })
}

resource "aws_iam_role_policy" "reconcile_role" {
  name = "reconcile"
  role = aws_iam_role.reconcile_role.name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "Records"
        Effect   = "Allow"
        Action   = ["dynamodb:GetItem", "dynamodb:PutItem"]
        Resource = module.idempotency.table_arn
      },
      {
        Sid      = "DueQuestions"
        Effect   = "Allow"
        Action   = "dynamodb:Query"
        Resource = "${module.idempotency.table_arn}/index/reconcile"
      },
      {
        Sid      = "Orders"
        Effect   = "Allow"
        Action   = "dynamodb:UpdateItem"
        Resource = aws_dynamodb_table.orders_table.arn
      },
      {
        Sid    = "Messages"
        Effect = "Allow"
        Action = [
          "sqs:DeleteMessage",
          "sqs:GetQueueAttributes",
          "sqs:ReceiveMessage",
          "sqs:SendMessage",
        ]
        Resource = module.idempotency.reconcile_queue_arn
      },
      {
        Sid    = "DeferredReports"
        Effect = "Allow"
        Action = [
          "sqs:ChangeMessageVisibility",
          "sqs:DeleteMessage",
          "sqs:GetQueueAttributes",
          "sqs:ReceiveMessage",
        ]
        Resource = module.idempotency.deferred_reports_queue_arn
      },
      {
        Sid    = "DeadLetters"
        Effect = "Allow"
        Action = "sqs:SendMessage"
        Resource = [
          module.idempotency.contradictions_queue_arn,
          module.idempotency.deferred_reports_dead_letters_queue_arn,
        ]
      },
      {
        Sid      = "FailedRuns"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = module.idempotency.failed_runs_queue_arn
      },
      {
        Sid      = "Logs"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = "${aws_cloudwatch_log_group.reconcile_logs.arn}:*"
      },
    ]
  })
}

resource "aws_cloudwatch_log_group" "reconcile_logs" {
  name              = "/aws/lambda/${var.name}-reconcile"
  retention_in_days = 30
}

resource "aws_iam_role" "schedules_role" {
  name_prefix = "${var.name}-schedules-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "scheduler.amazonaws.com" }
        Action    = "sts:AssumeRole"
        Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
      },
    ]
  })
}

resource "aws_iam_role_policy" "schedules_role" {
  name = "schedules"
  role = aws_iam_role.schedules_role.name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "Polls"
        Effect   = "Allow"
        Action   = "lambda:InvokeFunction"
        Resource = aws_lambda_function.reconcile_function.arn
      },
      {
        Sid      = "FailedRuns"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = module.idempotency.failed_runs_queue_arn
      },
    ]
  })
}

resource "aws_cloudwatch_metric_alarm" "poll_missing" {
  alarm_name          = "${var.name}-PollMissing"
  alarm_description   = "No poll has finished for 5 minutes: unknown outcomes are neither asked about nor counted, and their clients stay blocked. Begin with the log of `reconcile` and its schedule; then `idempotency list`."
  namespace           = module.idempotency.metrics_namespace
  metric_name         = "api.idempotency.reconcile.poll.count"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  treat_missing_data  = "breaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}


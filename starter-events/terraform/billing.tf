# The consumer of the queue: it charges what is placed.

# What the function `outbox` may do with the targets of the topics.
resource "aws_iam_role_policy" "outbox_targets" {
  name = "outbox-targets"
  role = module.idempotency.outbox_role_name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "Placed"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = aws_sqs_queue.billing_queue.arn
      },
    ]
  })
}

# A message says whose order it is. So give no other role the right to send to this queue.
resource "aws_sqs_queue" "billing_queue" {
  name = "${var.name}-billing"
  # Six time-outs of the function, as Lambda advises.
  visibility_timeout_seconds = 180
  message_retention_seconds  = 1209600
  sqs_managed_sse_enabled    = true
  # The function sends dead letters itself. A receive is no try: messages in flight, and held, are received too.
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.billing_dead_letters_queue.arn
    maxReceiveCount     = 1000
  })
}

resource "aws_sqs_queue" "billing_dead_letters_queue" {
  name_prefix               = "${var.name}-billing-dead-letters-"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_sqs_queue_redrive_allow_policy" "billing_dead_letters_queue" {
  queue_url = aws_sqs_queue.billing_dead_letters_queue.url
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.billing_queue.arn]
  })
}

resource "aws_sqs_queue_policy" "billing_queue_policy" {
  queue_url = aws_sqs_queue.billing_queue.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EncryptedTransportOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.billing_queue.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

resource "aws_sqs_queue_policy" "billing_dead_letters_queue_policy" {
  queue_url = aws_sqs_queue.billing_dead_letters_queue.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EncryptedTransportOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.billing_dead_letters_queue.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

# Charges what is placed.
resource "aws_lambda_function" "billing_function" {
  function_name    = "${var.name}-billing"
  filename         = "${local.zips}/billing/bootstrap.zip"
  source_code_hash = filebase64sha256("${local.zips}/billing/bootstrap.zip")
  handler          = "bootstrap"
  runtime          = "provided.al2023"
  architectures    = ["arm64"]
  memory_size      = 256
  # Longer than the provider's time-out.
  timeout                        = 30
  role                           = aws_iam_role.billing_role.arn
  reserved_concurrent_executions = local.is_closed ? 0 : -1

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.billing_logs.name
  }

  environment {
    variables = {
      METRICS_NAMESPACE              = module.idempotency.metrics_namespace
      IDEMPOTENCY_TABLE              = module.idempotency.table_name
      ORDERS_TABLE                   = aws_dynamodb_table.orders_table.name
      PROVIDER_URL                   = var.provider_url
      DEFERRED_REPORTS_QUEUE_URL     = module.idempotency.deferred_reports_queue_url
      BILLING_QUEUE_URL              = aws_sqs_queue.billing_queue.url
      BILLING_DEAD_LETTERS_QUEUE_URL = aws_sqs_queue.billing_dead_letters_queue.url
    }
  }

  # Lambda refuses an event source mapping, and a destination, if the role may not use it.
  depends_on = [aws_iam_role_policy.billing_role]
}

# A batch runs at once: the provider gets at most 50 requests.
resource "aws_lambda_event_source_mapping" "billing_function_placed" {
  function_name           = aws_lambda_function.billing_function.arn
  event_source_arn        = aws_sqs_queue.billing_queue.arn
  enabled                 = !local.is_closed
  batch_size              = 10
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = 5
  }
}

resource "aws_iam_role" "billing_role" {
  name_prefix = "${var.name}-billing-"
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

resource "aws_iam_role_policy" "billing_role" {
  name = "billing"
  role = aws_iam_role.billing_role.name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "Guard"
        Effect   = "Allow"
        Action   = ["dynamodb:GetItem", "dynamodb:PutItem"]
        Resource = module.idempotency.table_arn
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
          "sqs:ChangeMessageVisibility",
          "sqs:DeleteMessage",
          "sqs:GetQueueAttributes",
          "sqs:ReceiveMessage",
        ]
        Resource = aws_sqs_queue.billing_queue.arn
      },
      {
        Sid      = "DeadLetters"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = aws_sqs_queue.billing_dead_letters_queue.arn
      },
      {
        Sid      = "DeferredReports"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = module.idempotency.deferred_reports_queue_arn
      },
      {
        Sid      = "Logs"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = "${aws_cloudwatch_log_group.billing_logs.arn}:*"
      },
    ]
  })
}

resource "aws_cloudwatch_log_group" "billing_logs" {
  name              = "/aws/lambda/${var.name}-billing"
  retention_in_days = 30
}

resource "aws_cloudwatch_metric_alarm" "billing_errors" {
  alarm_name          = "${var.name}-BillingErrors"
  alarm_description   = "The function of the queue `billing` fails repeatedly, with whole batches: it crashes, does not start, or runs out of time. Its messages come again. Begin with the log of `billing`."
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = aws_lambda_function.billing_function.function_name }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "billing_throttled" {
  alarm_name          = "${var.name}-BillingThrottled"
  alarm_description   = "The function of the queue `billing` is throttled repeatedly: the account's other functions use its concurrency. Begin with the account's concurrency; then reserve some for the function."
  namespace           = "AWS/Lambda"
  metric_name         = "Throttles"
  dimensions          = { FunctionName = aws_lambda_function.billing_function.function_name }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "billing_dead" {
  alarm_name          = "${var.name}-BillingDead"
  alarm_description   = "Orders went to the dead letters. The reason of each says whether it is perhaps charged. The alarm stays until all are sent back or deleted. Begin with `idempotency dead-letters` with the queue's URL, and the log of `billing`."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.billing_dead_letters_queue.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "ignore"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "billing_dead_grow" {
  alarm_name          = "${var.name}-BillingDeadGrow"
  alarm_description   = "More orders went to the dead letters than before. BillingDead is on until the last is gone, and does not report them. Begin with the log of `billing`: `a message is dead`. Many at once share a cause."
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 20
  datapoints_to_alarm = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions

  metric_query {
    id          = "visible"
    return_data = false

    metric {
      namespace   = "AWS/SQS"
      metric_name = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = aws_sqs_queue.billing_dead_letters_queue.name }
      stat        = "Maximum"
      period      = 60
    }
  }

  metric_query {
    id          = "in_flight"
    return_data = false

    metric {
      namespace   = "AWS/SQS"
      metric_name = "ApproximateNumberOfMessagesNotVisible"
      dimensions  = { QueueName = aws_sqs_queue.billing_dead_letters_queue.name }
      stat        = "Maximum"
      period      = 60
    }
  }

  metric_query {
    id          = "number"
    return_data = false
    expression  = "SUM([FILL(visible, 0), FILL(in_flight, 0)])"
  }

  metric_query {
    id          = "before"
    return_data = false
    expression  = "number - DIFF(number)"
  }

  metric_query {
    id          = "earlier"
    return_data = false
    expression  = "before - DIFF(before)"
  }

  metric_query {
    id          = "earliest"
    return_data = false
    expression  = "earlier - DIFF(earlier)"
  }

  metric_query {
    id          = "growth"
    label       = "More than before"
    expression  = "MIN([number, before]) - MAX([earlier, earliest]) + 0 * earliest"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "billing_dead_old" {
  alarm_name          = "${var.name}-BillingDeadOld"
  alarm_description   = "Dead letters have waited in each hour of a week. SQS deletes one after 14 days, and nothing else knows of it. Begin with `idempotency dead-letters --queue` and its URL, and deal with all of them."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.billing_dead_letters_queue.name }
  statistic           = "Maximum"
  period              = 3600
  evaluation_periods  = 168
  datapoints_to_alarm = 160
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "ignore"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "billing_not_buried" {
  alarm_name          = "${var.name}-BillingNotBuried"
  alarm_description   = "A dead order could not be sent to the dead letters: it comes again and again. Begin with the log of `billing`, which says why: a permission, the queue's URL, or SQS itself."
  namespace           = module.idempotency.metrics_namespace
  metric_name         = "api.idempotency.message.not_buried.count"
  dimensions          = { queue = aws_sqs_queue.billing_queue.name }
  statistic           = "Sum"
  period              = 1800
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "billing_held" {
  alarm_name          = "${var.name}-BillingHeld"
  alarm_description   = "An order is held, because its outcome is unknown. Begin with `idempotency list --state unknown`, and the log of `billing`. The alarm ends within an hour after the outcome is known."
  namespace           = module.idempotency.metrics_namespace
  metric_name         = "api.idempotency.message.held.count"
  dimensions          = { queue = aws_sqs_queue.billing_queue.name }
  statistic           = "Sum"
  period              = 3600
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "billing_late" {
  alarm_name          = "${var.name}-BillingLate"
  alarm_description   = "An order has waited in the queue for 15 minutes: the function does not take orders, or they fail. Begin with the log of `billing`, and its throttles."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = aws_sqs_queue.billing_queue.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  comparison_operator = "GreaterThanThreshold"
  threshold           = 900
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}


# The two functions, what invokes them, and their logs.

# Finds records whose worker died.
resource "aws_lambda_function" "stale_function" {
  function_name                  = "${var.name}-stale"
  filename                       = var.stale_zip
  source_code_hash               = filebase64sha256(var.stale_zip)
  handler                        = "bootstrap"
  runtime                        = "provided.al2023"
  architectures                  = ["arm64"]
  memory_size                    = 512
  timeout                        = 60
  reserved_concurrent_executions = local.reserves_stale ? var.stale_concurrency : null
  role                           = aws_iam_role.stale_role.arn

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.stale_logs.name
  }

  environment {
    variables = merge(
      {
        METRICS_NAMESPACE        = var.metrics_namespace
        IDEMPOTENCY_TABLE        = local.table_name
        CHECKS_QUEUE_URL         = aws_sqs_queue.checks_queue.url
        SWEEP_QUEUE_URL          = aws_sqs_queue.sweep_queue.url
        CONTRADICTIONS_QUEUE_URL = aws_sqs_queue.contradictions_queue.url
        SWEEP_UNITS_PER_SECOND   = var.sweep_units_per_second
      },
      # Its sweeps ask once more for what is undelivered, and queue once more what no worker has taken.
      local.has_outbox ? {
        OUTBOX_QUEUE_URL = aws_sqs_queue.outbox_queue[0].url
        WORK_QUEUE_URL   = aws_sqs_queue.work_queue[0].url
      } : {},
    )
  }

  # Lambda refuses an event source mapping, and a destination, if the role may not use it.
  depends_on = [aws_iam_role_policy.stale_role]
}

# Only the sweep is invoked asynchronously. A repeated one finds the same records, a little later.
resource "aws_lambda_function_event_invoke_config" "stale_function_event_invoke_config" {
  function_name                = aws_lambda_function.stale_function.function_name
  qualifier                    = "$LATEST"
  maximum_retry_attempts       = 2
  maximum_event_age_in_seconds = 3600

  destination_config {
    on_failure {
      destination = aws_sqs_queue.failed_runs_queue.arn
    }
  }
}

# The template's comments say why each number is as it is.
resource "aws_lambda_event_source_mapping" "stale_function_changes" {
  function_name                      = aws_lambda_function.stale_function.arn
  event_source_arn                   = local.stream_arn
  starting_position                  = "TRIM_HORIZON"
  enabled                            = !local.is_stopped
  batch_size                         = 10000
  maximum_batching_window_in_seconds = var.batching_window_seconds
  parallelization_factor             = 1
  function_response_types            = ["ReportBatchItemFailures"]
  bisect_batch_on_function_error     = true
  maximum_retry_attempts             = -1
  maximum_record_age_in_seconds      = 14400

  destination_config {
    on_failure {
      destination_arn = aws_sqs_queue.dead_letters_queue.arn
    }
  }

  # A change that matches one of them is delivered. One that leaves out too much hides a dead worker.
  filter_criteria {
    filter {
      pattern = "{\"dynamodb\":{\"Keys\":{\"sk\":{\"S\":[\"record\"]}},\"NewImage\":{\"state\":{\"S\":[{\"anything-but\":[\"between_workers\",\"completed\",\"failed_retryable\",\"unknown\"]}]}}}}"
    }

    filter {
      pattern = "{\"dynamodb\":{\"Keys\":{\"sk\":{\"S\":[\"record\"]}},\"OldImage\":{\"state\":{\"S\":[\"in_progress\",\"pending\"]}}}}"
    }

    filter {
      pattern = "{\"dynamodb\":{\"Keys\":{\"sk\":{\"S\":[\"record\"]}},\"NewImage\":{\"state\":{\"S\":[{\"exists\":false}]}}}}"
    }
  }
}

resource "aws_lambda_event_source_mapping" "stale_function_checks" {
  function_name           = aws_lambda_function.stale_function.arn
  event_source_arn        = aws_sqs_queue.checks_queue.arn
  enabled                 = !local.is_stopped
  batch_size              = 10
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = 5
  }
}

resource "aws_lambda_event_source_mapping" "stale_function_sweeps" {
  function_name           = aws_lambda_function.stale_function.arn
  event_source_arn        = aws_sqs_queue.sweep_queue.arn
  enabled                 = !local.is_stopped
  batch_size              = 1
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = 2
  }
}

resource "aws_scheduler_schedule" "stale_function_sweep" {
  name                = "${var.name}-sweep"
  schedule_expression = var.sweep_schedule
  state               = local.is_stopped ? "DISABLED" : "ENABLED"

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = aws_lambda_function.stale_function.arn
    role_arn = aws_iam_role.schedules_role.arn
    input    = "{\"job\":\"sweep\"}"

    retry_policy {
      maximum_retry_attempts       = 10
      maximum_event_age_in_seconds = 3600
    }

    dead_letter_config {
      arn = aws_sqs_queue.failed_runs_queue.arn
    }
  }

  depends_on = [aws_iam_role_policy.schedules_role]
}

resource "aws_cloudwatch_log_group" "stale_logs" {
  name              = "/aws/lambda/${var.name}-stale"
  retention_in_days = var.log_retention_days
}

# Delivers what operations publish, and queues accepted work.
resource "aws_lambda_function" "outbox_function" {
  count                          = local.has_outbox_function ? 1 : 0
  function_name                  = "${var.name}-outbox"
  filename                       = var.outbox_zip
  source_code_hash               = filebase64sha256(var.outbox_zip)
  handler                        = "bootstrap"
  runtime                        = "provided.al2023"
  architectures                  = ["arm64"]
  memory_size                    = 256
  timeout                        = 30
  reserved_concurrent_executions = local.reserves_outbox ? var.outbox_concurrency : null
  role                           = aws_iam_role.outbox_role[0].arn

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.outbox_logs[0].name
  }

  environment {
    variables = {
      METRICS_NAMESPACE             = var.metrics_namespace
      IDEMPOTENCY_TABLE             = local.table_name
      OUTBOX_TOPICS                 = var.outbox_topics
      OUTBOX_QUEUE_URL              = aws_sqs_queue.outbox_queue[0].url
      OUTBOX_DEAD_LETTERS_QUEUE_URL = aws_sqs_queue.outbox_dead_letters_queue[0].url
      WORK_QUEUE_URL                = aws_sqs_queue.work_queue[0].url
    }
  }

  depends_on = [aws_iam_role_policy.outbox_role]
}

# The second reader of the stream. More than two readers of a shard are throttled, so no other function may read it.
resource "aws_lambda_event_source_mapping" "outbox_function_changes" {
  count                              = local.has_outbox_function ? 1 : 0
  function_name                      = aws_lambda_function.outbox_function[0].arn
  event_source_arn                   = local.stream_arn
  starting_position                  = "TRIM_HORIZON"
  enabled                            = !local.is_stopped
  batch_size                         = 500
  maximum_batching_window_in_seconds = 0
  parallelization_factor             = 1
  function_response_types            = ["ReportBatchItemFailures"]
  bisect_batch_on_function_error     = true
  maximum_retry_attempts             = -1
  maximum_record_age_in_seconds      = 14400

  destination_config {
    on_failure {
      destination_arn = aws_sqs_queue.dead_letters_queue.arn
    }
  }

  filter_criteria {
    filter {
      pattern = "{\"dynamodb\":{\"NewImage\":{\"sk\":{\"S\":[{\"prefix\":\"message#\"}]}}}}"
    }

    filter {
      pattern = "{\"dynamodb\":{\"Keys\":{\"sk\":{\"S\":[\"record\"]}},\"NewImage\":{\"state\":{\"S\":[\"between_workers\",\"pending\"]}}}}"
    }
  }
}

resource "aws_lambda_event_source_mapping" "outbox_function_deliveries" {
  count                   = local.has_outbox_function ? 1 : 0
  function_name           = aws_lambda_function.outbox_function[0].arn
  event_source_arn        = aws_sqs_queue.outbox_queue[0].arn
  enabled                 = !local.is_stopped
  batch_size              = 10
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = 10
  }
}

resource "aws_cloudwatch_log_group" "outbox_logs" {
  count             = local.has_outbox_function ? 1 : 0
  name              = "/aws/lambda/${var.name}-outbox"
  retention_in_days = var.log_retention_days
}

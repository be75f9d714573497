# Made from infra/idempotency.yaml, whose comments give the reasons. Do not edit it.

resource "aws_cloudwatch_metric_alarm" "answers_inconclusive" {
  alarm_name          = "${var.name}-AnswersInconclusive"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Handlers answer what does not say whether the operation was executed, such as 403 or 429: each leaves an unknown outcome, and its client is blocked. Begin with the log of the guarded function, then `idempotency list --state unknown`. Something inside the guard refuses requests: put it before the guard, or declare the outcome."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.completion.inconclusive.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = var.inconclusive_tolerated
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "checks_late" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-ChecksLate"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The stale function does not take its checks, so dead workers go unnoticed. Begin with the log of `stale`; `idempotency sweep --reason TEXT` does its work meanwhile."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.checks_queue.name
  }
  evaluation_periods = 5
  metric_name        = "ApproximateAgeOfOldestMessage"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 3600
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "client_loops" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-ClientLoops"
  alarm_actions       = local.alarm_actions
  alarm_description   = "For a quarter of an hour there have been far more replays than one for five new operations: a client sends keys again and again that have their answers. Nothing runs twice, but each costs an invocation and a write unit at least. Begin with the saved query \"tenants with most replays\", over the log groups of the guarded functions; then ask that client to stop, or throttle it."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 3
  ok_actions          = local.alarm_actions
  threshold           = var.replays_tolerated
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "replays"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.replay.count"
      namespace   = var.metrics_namespace
      period      = 300
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "created"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.created.count"
      namespace   = var.metrics_namespace
      period      = 300
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "accepted"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.accepted.count"
      namespace   = var.metrics_namespace
      period      = 300
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "committed"
    return_data = false

    metric {
      metric_name = "api.idempotency.transaction.committed.count"
      namespace   = var.metrics_namespace
      period      = 300
      stat        = "Sum"
    }
  }

  metric_query {
    expression  = "SUM([replays, 0 - 0.2 * created, 0 - 0.2 * accepted, 0 - 0.2 * committed])"
    id          = "excess"
    label       = "Replays that are too many"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "contradictions" {
  alarm_name          = "${var.name}-Contradictions"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A report of a provider or of a worker contradicts its record or has none, so an effect may have happened twice; or a change of the table cannot be read. The alarm ends after five minutes, and ContradictionsWaiting is on until the last is dealt with. Begin with `idempotency dead-letters`, whose --queue is ContradictionsQueueUrl; compare each with `idempotency show`, and count the effects at the provider."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.contradiction.sent.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "contradictions_old" {
  alarm_name          = "${var.name}-ContradictionsOld"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Contradictions have waited in each hour of a week. SQS deletes one after 14 days, and with it perhaps the only trace of an effect. Begin with `idempotency dead-letters`, whose --queue is ContradictionsQueueUrl."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 160
  dimensions = {
    QueueName = aws_sqs_queue.contradictions_queue.name
  }
  evaluation_periods = 168
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 3600
  statistic          = "Maximum"
  threshold          = 0
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "contradictions_unsent" {
  alarm_name          = "${var.name}-ContradictionsUnsent"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A worker's report of what it did is taken neither by its record nor by a queue: only the log has it. Begin with the errors in the log of the guarded function, whose span names operation and key; then `idempotency show` with the hash and --scan, and look the effect up at the provider."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.contradiction.unsent.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "contradictions_waiting" {
  alarm_name          = "${var.name}-ContradictionsWaiting"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Contradictions, or changes of the table that cannot be read, wait for an operator. The alarm stays until all are dropped. Begin with `idempotency dead-letters`, whose --queue is ContradictionsQueueUrl."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.contradictions_queue.name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 0
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "dead_letters_grow" {
  alarm_name          = "${var.name}-DeadLettersGrow"
  alarm_actions       = local.alarm_actions
  alarm_description   = "There are more dead letters than before. DeadLettersWaiting is on until the last is gone, and does not report them. Begin with `idempotency dead-letters`: many of one kind share a cause."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 1
  evaluation_periods  = 20
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "visible"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.dead_letters_queue.name
      }
      metric_name = "ApproximateNumberOfMessagesVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    id          = "in_flight"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.dead_letters_queue.name
      }
      metric_name = "ApproximateNumberOfMessagesNotVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    expression  = "SUM([FILL(visible, 0), FILL(in_flight, 0)])"
    id          = "number"
    return_data = false
  }

  metric_query {
    expression  = "number - DIFF(number)"
    id          = "before"
    return_data = false
  }

  metric_query {
    expression  = "before - DIFF(before)"
    id          = "earlier"
    return_data = false
  }

  metric_query {
    expression  = "earlier - DIFF(earlier)"
    id          = "earliest"
    return_data = false
  }

  metric_query {
    expression  = "MIN([number, before]) - MAX([earlier, earliest]) + 0 * earliest"
    id          = "growth"
    label       = "More than before"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "dead_letters_old" {
  alarm_name          = "${var.name}-DeadLettersOld"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Dead letters have waited in each hour of a week. A dead letter is deleted after 14 days, which include its time in other queues, and with it perhaps the only trace of an effect. Begin with `idempotency dead-letters`."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 160
  dimensions = {
    QueueName = aws_sqs_queue.dead_letters_queue.name
  }
  evaluation_periods = 168
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 3600
  statistic          = "Maximum"
  threshold          = 0
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "dead_letters_waiting" {
  alarm_name          = "${var.name}-DeadLettersWaiting"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Dead letters wait for an operator: messages that failed too often. The alarm stays until all are sent back or dropped. Begin with `idempotency dead-letters`."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.dead_letters_queue.name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 0
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "dead_workers" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-DeadWorkers"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A worker died, or ran out of time, between its effect and its record. The outcome is unknown, and the provider is asked. With effects_in_transaction it certainly did nothing: the provider is not asked, and a retry runs. An operation that resumes waits between workers for a retry. Begin with `idempotency list`; the log lines of `stale` name the keys by their hash."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.zombie_key.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = var.dead_workers_tolerated
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "double_executions" {
  alarm_name          = "${var.name}-DoubleExecutions"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Two executions certainly or possibly ran one operation. Begin with `idempotency list --alarmed`, which names the record; count the effects at the provider."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.double_execution.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "escalated_grow" {
  alarm_name          = "${var.name}-EscalatedGrow"
  alarm_actions       = local.alarm_actions
  alarm_description   = "One more record waits for an operator. OutcomesEscalated is on until none does, and does not report it. Begin with `idempotency list --escalated`: many of one operation share a cause."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.escalated.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "key_misuse" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-KeyMisuse"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Keys are reused with another request, or a tenant looks up more operations than it may: by a client's mistake, or by an attacker who guesses keys. They get 422 or 429, and nothing runs. Begin with the saved queries \"tenants that reuse keys\" and \"tenants that look up keys\", over the log groups of the guarded functions."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  ok_actions          = local.alarm_actions
  threshold           = var.key_misuse_tolerated
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "reused"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.key_misuse.count"
      namespace   = var.metrics_namespace
      period      = 300
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "refused"
    return_data = false

    metric {
      metric_name = "api.idempotency.look_up.over_bound.count"
      namespace   = var.metrics_namespace
      period      = 300
      stat        = "Sum"
    }
  }

  metric_query {
    expression  = "SUM([FILL(reused, 0), FILL(refused, 0)])"
    id          = "guessed"
    label       = "keys that are reused, and look-ups that are refused"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "metrics_silent" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-MetricsSilent"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Executions begin in the table, but for three hours no guarded function has counted one in this namespace: no alarm on what they count can come. Begin with the variable METRICS_NAMESPACE of the guarded functions, and with their error lines about metrics."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 3
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "began"
    return_data = false

    metric {
      metric_name = "api.idempotency.stream.began.count"
      namespace   = var.metrics_namespace
      period      = 3600
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "created"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.created.count"
      namespace   = var.metrics_namespace
      period      = 3600
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "again"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.failed_retry.count"
      namespace   = var.metrics_namespace
      period      = 3600
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "late"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.too_late.count"
      namespace   = var.metrics_namespace
      period      = 3600
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "stopped"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.stopped.count"
      namespace   = var.metrics_namespace
      period      = 3600
      stat        = "Sum"
    }
  }

  metric_query {
    expression  = "IF(FILL(began, 0) > 0 AND SUM([created, again, late, stopped, 0 * FILL(began, 0)]) < 1, 1, 0)"
    id          = "silent"
    label       = "Executions begin, but none is counted"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "oldest_unknown" {
  alarm_name          = "${var.name}-OldestUnknown"
  alarm_actions       = local.alarm_actions
  alarm_description   = "An outcome has been unknown for too long: retries of its client are blocked, and the provider has no answer. Begin with `idempotency list --state unknown`: the oldest come first."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 5
  metric_name         = "api.idempotency.unknown.oldest.seconds"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 60
  statistic           = "Maximum"
  threshold           = var.oldest_unknown_seconds
  treat_missing_data  = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "operations_waiting" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-OperationsWaiting"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Many operations have waited between workers for a quarter of an hour: a part of each is done, and the rest happens only if its client retries. Perhaps the provider, or the handler, fails in one phase. Begin with `idempotency list --state between-workers`, which has the last failure of each."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.between_workers.operations"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 900
  statistic           = "Minimum"
  threshold           = var.operations_waiting_tolerated
  treat_missing_data  = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "operations_waiting_grow" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-OperationsWaitingGrow"
  alarm_actions       = local.alarm_actions
  alarm_description   = "More operations have waited between workers for a whole hour than in the hour before: clients do not retry, or retries fail. OperationsWaiting may be on for older ones, and does not report them. Begin with `idempotency list --state between-workers`."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  ok_actions          = local.alarm_actions
  threshold           = var.operations_waiting_tolerated
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "number"
    return_data = false

    metric {
      metric_name = "api.idempotency.between_workers.operations"
      namespace   = var.metrics_namespace
      period      = 3600
      stat        = "Minimum"
    }
  }

  metric_query {
    expression  = "DIFF(number)"
    id          = "growth"
    label       = "More than before"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "outbox_dead" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxDead"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Deliveries were given up after 20 tries, each with its reason. Their messages are still in the table, and the daily sweep asks for them again. The alarm stays until the dead letters are sent back or dropped. Begin with `idempotency dead-letters`, whose --queue is OutboxDeadLettersQueueUrl; then `idempotency list --undelivered`."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.outbox_dead_letters_queue[0].name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 0
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "outbox_dead_grow" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxDeadGrow"
  alarm_actions       = local.alarm_actions
  alarm_description   = "More deliveries were given up than before. OutboxDead is on until the last is gone, and does not report them. Begin with `idempotency dead-letters`, whose --queue is OutboxDeadLettersQueueUrl. Many at once share a cause, such as a target that is gone."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 1
  evaluation_periods  = 20
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "visible"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.outbox_dead_letters_queue[0].name
      }
      metric_name = "ApproximateNumberOfMessagesVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    id          = "in_flight"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.outbox_dead_letters_queue[0].name
      }
      metric_name = "ApproximateNumberOfMessagesNotVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    expression  = "SUM([FILL(visible, 0), FILL(in_flight, 0)])"
    id          = "number"
    return_data = false
  }

  metric_query {
    expression  = "number - DIFF(number)"
    id          = "before"
    return_data = false
  }

  metric_query {
    expression  = "before - DIFF(before)"
    id          = "earlier"
    return_data = false
  }

  metric_query {
    expression  = "earlier - DIFF(earlier)"
    id          = "earliest"
    return_data = false
  }

  metric_query {
    expression  = "MIN([number, before]) - MAX([earlier, earliest]) + 0 * earliest"
    id          = "growth"
    label       = "More than before"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "outbox_errors" {
  count               = local.has_outbox_function_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxErrors"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The outbox function fails repeatedly, or does not start: a topic without a target, a target that it does not know. Nothing that operations publish is delivered, and no accepted work is queued. Begin with its log."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.outbox_function[0].function_name
  }
  evaluation_periods = 3
  metric_name        = "Errors"
  namespace          = "AWS/Lambda"
  ok_actions         = local.alarm_actions
  period             = 300
  statistic          = "Sum"
  threshold          = 0
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "outbox_failing" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxFailing"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Targets do not take messages of the outbox. Each message is tried 20 times within about three hours, and holds up the later ones of its operation. Nothing is lost. Begin with the log of `outbox`: a permission on the target, its name, or the target itself."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.outbox.not_delivered.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 3600
  statistic           = "Sum"
  threshold           = 2
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "outbox_not_buried" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxNotBuried"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A delivery that was given up could not be sent to the dead letters of the outbox. It is tried again and again, and its operation's later messages wait behind it. Begin with the log of `outbox`: a permission, or the queue."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    queue = aws_sqs_queue.outbox_queue[0].name
  }
  evaluation_periods = 1
  metric_name        = "api.idempotency.message.not_buried.count"
  namespace          = var.metrics_namespace
  ok_actions         = local.alarm_actions
  period             = 1800
  statistic          = "Sum"
  threshold          = 0
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "outbox_old" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxOld"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A delivery has waited for 15 minutes: what operations publish does not reach its consumers. Begin with the log of `outbox`, which says what a target answers; then `idempotency list --undelivered`. SQS may leave out a delivery that was tried three times: OutboxFailing and OutboxDead are about those."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.outbox_queue[0].name
  }
  evaluation_periods = 5
  metric_name        = "ApproximateAgeOfOldestMessage"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 900
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "outbox_stream_late" {
  count               = local.has_outbox_function_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxStreamLate"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The outbox function lags behind the stream of changes: messages are delivered late, and accepted work waits. After 24 hours only the sweep finds them. Begin with the log of `outbox`; if it is throttled, with its concurrency."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.outbox_function[0].function_name
  }
  evaluation_periods = 1
  metric_name        = "IteratorAge"
  namespace          = "AWS/Lambda"
  ok_actions         = local.alarm_actions
  period             = 300
  statistic          = "Maximum"
  threshold          = 300000
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "outbox_stream_silent" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxStreamSilent"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Operations publish, or requests are accepted, but nothing reads the stream for it: only the daily sweep finds them. Begin with the event source mappings of `outbox` (aws lambda list-event-source-mappings), and with its log."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 2
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "published"
    return_data = false

    metric {
      metric_name = "api.idempotency.outbox.published.count"
      namespace   = var.metrics_namespace
      period      = 900
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "accepted"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.accepted.count"
      namespace   = var.metrics_namespace
      period      = 900
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "batches"
    return_data = false

    metric {
      metric_name = "api.idempotency.outbox.batch.count"
      namespace   = var.metrics_namespace
      period      = 900
      stat        = "Sum"
    }
  }

  metric_query {
    expression  = "SUM([FILL(published, 0), FILL(accepted, 0)])"
    id          = "begun"
    return_data = false
  }

  metric_query {
    expression  = "IF(begun > 0 AND MAX([FILL(batches, 0), 0 * begun]) < 1, 1, 0)"
    id          = "silent"
    label       = "Something is published or accepted, but no batch of changes is read"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "outbox_throttled" {
  count               = local.has_outbox_function_alarms ? 1 : 0
  alarm_name          = "${var.name}-OutboxThrottled"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The outbox function is throttled repeatedly: the account's other functions use its concurrency, or it needs more than OutboxConcurrency. Begin with the account's concurrency, then reserve more for the function."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.outbox_function[0].function_name
  }
  evaluation_periods = 3
  metric_name        = "Throttles"
  namespace          = "AWS/Lambda"
  ok_actions         = local.alarm_actions
  period             = 300
  statistic          = "Sum"
  threshold          = 0
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "outbox_undelivered" {
  alarm_name          = "${var.name}-OutboxUndelivered"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The last sweep found messages that should have been delivered, and asked for them again. The alarm stays until a sweep finds none. Begin with `idempotency list --undelivered`; then the log of `outbox`. If it lists none, the next sweep ends the alarm."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.outbox.undelivered"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 60
  statistic           = "Maximum"
  threshold           = 0
  treat_missing_data  = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "outcomes_assumed" {
  alarm_name          = "${var.name}-OutcomesAssumed"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Many unknown outcomes were released because the provider does not find them. If it has an incident, that proves nothing, and each may be executed twice: `idempotency not-found-releases off --reason TEXT` stops it. Begin with the provider's status page; `idempotency list --released --by assumption --since 1h --units-per-second 1000` names them."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.reconcile.assumed.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 900
  statistic           = "Sum"
  threshold           = var.outcomes_assumed_tolerated
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "outcomes_escalated" {
  alarm_name          = "${var.name}-OutcomesEscalated"
  alarm_actions       = local.alarm_actions
  alarm_description   = "These records wait for an operator: outcomes to find out and settle, operations between workers that nobody resumed in time, or records with an alarm of their own. This alarm stays until none waits. Begin with `idempotency list --escalated`."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.unknown.escalated"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 60
  statistic           = "Maximum"
  threshold           = 0
  treat_missing_data  = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "phases_mismatched" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-PhasesMismatched"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The handler does not fit the phases that a record keeps, or declares others than it was begun with: such operations cannot go on, and their clients get 503. Nothing is lost: the former version can still resume them. Begin with a deployment of that version; the log of the guarded function names the phase. Then `idempotency list --state between-workers`."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.phase.mismatch.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "questions_late" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-QuestionsLate"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The reconcile function does not take what waits for it: questions of operators, and reports of the provider. SQS deletes them after four days, and polls do not show it. Begin with the event source mappings of `reconcile`, and with its log."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.reconcile_queue.name
  }
  evaluation_periods = 5
  metric_name        = "ApproximateAgeOfOldestMessage"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 3600
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "reports_dead" {
  alarm_name          = "${var.name}-ReportsDead"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Deferred reports could not be written for days, or cannot be read. Each may be the only trace of an effect: its record may be released, and the operation run again. The alarm stays until all are sent back or dropped. Begin with `idempotency dead-letters`, whose --queue is DeferredReportsDeadLettersQueueUrl, and compare each with `idempotency show`."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.deferred_reports_dead_letters_queue.name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 0
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "reports_dead_grow" {
  alarm_name          = "${var.name}-ReportsDeadGrow"
  alarm_actions       = local.alarm_actions
  alarm_description   = "There are more dead deferred reports than before, each perhaps the only trace of an effect. ReportsDead is on until the last is gone, and does not report them. Begin with `idempotency dead-letters`, as for ReportsDead."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 1
  evaluation_periods  = 20
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "visible"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.deferred_reports_dead_letters_queue.name
      }
      metric_name = "ApproximateNumberOfMessagesVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    id          = "in_flight"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.deferred_reports_dead_letters_queue.name
      }
      metric_name = "ApproximateNumberOfMessagesNotVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    expression  = "SUM([FILL(visible, 0), FILL(in_flight, 0)])"
    id          = "number"
    return_data = false
  }

  metric_query {
    expression  = "number - DIFF(number)"
    id          = "before"
    return_data = false
  }

  metric_query {
    expression  = "before - DIFF(before)"
    id          = "earlier"
    return_data = false
  }

  metric_query {
    expression  = "earlier - DIFF(earlier)"
    id          = "earliest"
    return_data = false
  }

  metric_query {
    expression  = "MIN([number, before]) - MAX([earlier, earliest]) + 0 * earliest"
    id          = "growth"
    label       = "More than before"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "reports_dead_old" {
  alarm_name          = "${var.name}-ReportsDeadOld"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Dead deferred reports have waited in each hour of four days. SQS deletes one 14 days after its worker deferred it, some four of which it spent in its own queue, and with it perhaps the only trace of an effect. Begin with `idempotency dead-letters`, whose --queue is DeferredReportsDeadLettersQueueUrl."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 90
  dimensions = {
    QueueName = aws_sqs_queue.deferred_reports_dead_letters_queue.name
  }
  evaluation_periods = 96
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 3600
  statistic          = "Maximum"
  threshold          = 0
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "reports_grow" {
  alarm_name          = "${var.name}-ReportsGrow"
  alarm_actions       = local.alarm_actions
  alarm_description   = "More deferred reports wait than before, and are not applied at once. ReportsLate may be on for an older one, and does not report them. Begin with the log of the reconcile function, as for ReportsLate."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 1
  evaluation_periods  = 20
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "visible"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.deferred_reports_queue.name
      }
      metric_name = "ApproximateNumberOfMessagesVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    id          = "in_flight"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.deferred_reports_queue.name
      }
      metric_name = "ApproximateNumberOfMessagesNotVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    expression  = "SUM([FILL(visible, 0), FILL(in_flight, 0)])"
    id          = "number"
    return_data = false
  }

  metric_query {
    expression  = "number - DIFF(number)"
    id          = "before"
    return_data = false
  }

  metric_query {
    expression  = "before - DIFF(before)"
    id          = "earlier"
    return_data = false
  }

  metric_query {
    expression  = "earlier - DIFF(earlier)"
    id          = "earliest"
    return_data = false
  }

  metric_query {
    expression  = "MIN([number, before]) - MAX([earlier, earliest]) + 0 * earliest"
    id          = "growth"
    label       = "More than before"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "reports_late" {
  alarm_name          = "${var.name}-ReportsLate"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Deferred reports wait to be written: the reconcile function does not take them, or fails. Some minutes from now their effects could count as not executed. Begin with the log of the reconcile function. If it cannot be fixed at once, run `idempotency not-found-releases off --reason TEXT`; then `idempotency list --state unknown`."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 1
  evaluation_periods  = 20
  ok_actions          = local.alarm_actions
  threshold           = 60
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "received"
    return_data = false

    metric {
      metric_name = "api.idempotency.completion.deferred.age.seconds"
      namespace   = var.metrics_namespace
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    id          = "waiting"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.deferred_reports_queue.name
      }
      metric_name = "ApproximateAgeOfOldestMessage"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    expression  = "MAX([FILL(received, 0), FILL(waiting, 0)])"
    id          = "late"
    label       = "The age of the oldest deferred report, in seconds"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "reports_unwritten" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-ReportsUnwritten"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A worker could neither write its report nor defer it. Its caller got the true answer, or outcome-unknown if it had domain writes or effects_in_transaction. The record becomes unknown when its lease has expired, and the provider is asked. With effects_in_transaction the provider is not asked: if its transaction did not commit, the record is released, and a retry runs. Begin with `idempotency list --state unknown`; the log of the guarded function says why."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.completion.unwritten.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "runs_failed" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-RunsFailed"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A scheduled run (poll, sweep, comparison) failed, or could not begin. The next run does its work; nothing is lost yet. Begin with the queue `failed-runs`, whose messages name the function and its error: aws sqs receive-message."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.failed_runs_queue.name
  }
  evaluation_periods = 1
  metric_name        = "NumberOfMessagesSent"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 900
  statistic          = "Sum"
  threshold          = 0
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "stale_errors" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-StaleErrors"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The stale function fails repeatedly. Begin with its log; `idempotency sweep --reason TEXT` does its work meanwhile."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.stale_function.function_name
  }
  evaluation_periods = 3
  metric_name        = "Errors"
  namespace          = "AWS/Lambda"
  ok_actions         = local.alarm_actions
  period             = 300
  statistic          = "Sum"
  threshold          = 0
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "stale_throttled" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-StaleThrottled"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The stale function is throttled repeatedly: the account's other functions use its concurrency, or it needs more than StaleConcurrency. Begin with the account's concurrency, then reserve more for the function."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.stale_function.function_name
  }
  evaluation_periods = 3
  metric_name        = "Throttles"
  namespace          = "AWS/Lambda"
  ok_actions         = local.alarm_actions
  period             = 300
  statistic          = "Sum"
  threshold          = 0
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "store_errors" {
  alarm_name          = "${var.name}-StoreErrors"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Calls to the table fail: guarded requests get 503, and nothing runs. Begin with the functions' log lines \"reservation failed: the request is refused\" and \"a record could not be written yet\"."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.store.error.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = var.store_errors_tolerated
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "store_throttled" {
  alarm_name          = "${var.name}-StoreThrottled"
  alarm_actions       = local.alarm_actions
  alarm_description   = "For a quarter of an hour DynamoDB has throttled calls to the table: requests get 503, or their outcomes become unknown. Begin with the functions' log lines \"reservation failed: the request is refused\", \"a record could not be written yet\" and \"a transaction is not confirmed\". One hash again and again is a client that sends one key in a loop, and slows only that key. Many hashes: the table's throttling metrics and limits."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 3
  metric_name         = "api.idempotency.store.throttled.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = var.store_errors_tolerated
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "stream_late" {
  alarm_name          = "${var.name}-StreamLate"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The stale function lags behind the stream of changes: dead workers are found late, and after 24 hours changes are lost. Begin with the log of `stale`; if it is throttled, with its concurrency; `idempotency sweep --reason TEXT` finds dead workers meanwhile."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.stale_function.function_name
  }
  evaluation_periods = 1
  metric_name        = "IteratorAge"
  namespace          = "AWS/Lambda"
  ok_actions         = local.alarm_actions
  period             = 300
  statistic          = "Maximum"
  threshold          = 900000
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "stream_silent" {
  alarm_name          = "${var.name}-StreamSilent"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Operations begin, but nothing reads the stream of their changes: only the sweep finds dead workers. Begin with the event source mappings of `stale` (aws lambda list-event-source-mappings); `idempotency sweep --reason TEXT` does its work meanwhile."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 2
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "created"
    return_data = false

    metric {
      metric_name = "api.idempotency.reserve.created.count"
      namespace   = var.metrics_namespace
      period      = 900
      stat        = "Sum"
    }
  }

  metric_query {
    id          = "batches"
    return_data = false

    metric {
      metric_name = "api.idempotency.stream.batch.count"
      namespace   = var.metrics_namespace
      period      = 900
      stat        = "Sum"
    }
  }

  metric_query {
    expression  = "IF(FILL(created, 0) > 0 AND MAX([FILL(batches, 0), 0 * FILL(created, 0)]) < 1, 1, 0)"
    id          = "silent"
    label       = "Operations begin, but no batch of changes is read"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "sweep_late" {
  count               = local.has_all_alarms ? 1 : 0
  alarm_name          = "${var.name}-SweepLate"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A sweep is stuck. Begin with the log of `stale`; `idempotency sweep --reason TEXT` does its work meanwhile."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.sweep_queue.name
  }
  evaluation_periods = 5
  metric_name        = "ApproximateAgeOfOldestMessage"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 3600
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "sweep_missing" {
  alarm_name          = "${var.name}-SweepMissing"
  alarm_actions       = local.alarm_actions
  alarm_description   = "No sweep has finished for SweepMissingHours: records that the stream missed stay in progress for ever. A new stack shows this until its first sweep. Begin with `aws lambda invoke` of `stale` with {\"job\":\"sweep\"}, then its schedule and its log."
  comparison_operator = "LessThanThreshold"
  evaluation_periods  = var.sweep_missing_hours
  metric_name         = "api.idempotency.sweep.completed.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 3600
  statistic           = "Sum"
  threshold           = 1
  treat_missing_data  = "breaching"
}

resource "aws_cloudwatch_metric_alarm" "table_settings_off" {
  alarm_name          = "${var.name}-TableSettingsOff"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The last sweep found settings of the table off: its stream, time to live or point-in-time recovery, as in a table that was restored. Begin with the log of `stale`: \"a setting of the table is off\"."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 1
  evaluation_periods  = 3
  metric_name         = "api.idempotency.table.setting_off.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 43200
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "transactions_unconfirmed" {
  alarm_name          = "${var.name}-TransactionsUnconfirmed"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The store does not confirm single transactions: their clients get 503. Nothing has to be settled: they may retry with the same key. Begin with the log lines \"a transaction is not confirmed\" of the guarded function, which have kind and cause. Refused lasts until it is repaired: a missing permission on a domain table, a deleted table, a reserved word or another mistake in an expression, an update of a missing attribute. Contended means that too many write the same item; otherwise the store is unavailable."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.transaction.unconfirmed.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = var.transactions_unconfirmed_tolerated
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "unknown_grow" {
  alarm_name          = "${var.name}-UnknownGrow"
  alarm_actions       = local.alarm_actions
  alarm_description   = "More outcomes have been unknown for a whole hour than in the hour before: questions do not settle them. OldestUnknown may be on for an older one, and does not report them. Begin with `idempotency list --state unknown`, and with the provider."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "number"
    return_data = false

    metric {
      metric_name = "api.idempotency.unknown.outcomes"
      namespace   = var.metrics_namespace
      period      = 3600
      stat        = "Minimum"
    }
  }

  metric_query {
    expression  = "DIFF(number)"
    id          = "growth"
    label       = "More than before"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "work_abandoned" {
  alarm_name          = "${var.name}-WorkAbandoned"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Accepted requests ended with 408: no worker began them in time, or all their executions did nothing. Nothing was done, but what their acceptance wrote stays. Begin with the log of your worker; the records' last failures are in `idempotency show`."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.work.abandoned.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "work_dead" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-WorkDead"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Accepted work went to its dead letters, each with its reason. The daily sweep queues it again, and it fails again until its cause is repaired. The alarm stays until all are sent back or dropped. Begin with `idempotency dead-letters`, whose --queue is WorkDeadLettersQueueUrl."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.work_dead_letters_queue[0].name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = 0
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "work_dead_grow" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-WorkDeadGrow"
  alarm_actions       = local.alarm_actions
  alarm_description   = "More accepted work went to the dead letters than before. WorkDead is on until the last is gone, and does not report it. Begin with `idempotency dead-letters`, whose --queue is WorkDeadLettersQueueUrl. Many at once share a cause, such as a route that is gone."
  comparison_operator = "GreaterThanThreshold"
  datapoints_to_alarm = 1
  evaluation_periods  = 20
  ok_actions          = local.alarm_actions
  threshold           = 0
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "visible"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.work_dead_letters_queue[0].name
      }
      metric_name = "ApproximateNumberOfMessagesVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    id          = "in_flight"
    return_data = false

    metric {
      dimensions = {
        QueueName = aws_sqs_queue.work_dead_letters_queue[0].name
      }
      metric_name = "ApproximateNumberOfMessagesNotVisible"
      namespace   = "AWS/SQS"
      period      = 60
      stat        = "Maximum"
    }
  }

  metric_query {
    expression  = "SUM([FILL(visible, 0), FILL(in_flight, 0)])"
    id          = "number"
    return_data = false
  }

  metric_query {
    expression  = "number - DIFF(number)"
    id          = "before"
    return_data = false
  }

  metric_query {
    expression  = "before - DIFF(before)"
    id          = "earlier"
    return_data = false
  }

  metric_query {
    expression  = "earlier - DIFF(earlier)"
    id          = "earliest"
    return_data = false
  }

  metric_query {
    expression  = "MIN([number, before]) - MAX([earlier, earliest]) + 0 * earliest"
    id          = "growth"
    label       = "More than before"
    return_data = true
  }
}

resource "aws_cloudwatch_metric_alarm" "work_not_buried" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-WorkNotBuried"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Dead accepted work could not be sent to its dead letters. It is redelivered again and again. Begin with the log of your worker: a permission, the URL of the dead letters, or the queue."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    queue = aws_sqs_queue.work_queue[0].name
  }
  evaluation_periods = 1
  metric_name        = "api.idempotency.message.not_buried.count"
  namespace          = var.metrics_namespace
  ok_actions         = local.alarm_actions
  period             = 1800
  statistic          = "Sum"
  threshold          = 0
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "work_old" {
  count               = local.has_outbox_alarms ? 1 : 0
  alarm_name          = "${var.name}-WorkOld"
  alarm_actions       = local.alarm_actions
  alarm_description   = "Accepted work has waited in its queue for too long: its clients got 202, and no answer yet. What no worker takes in time ends with 408, or is escalated. Begin with the log of your worker and its throttles; then `idempotency list --pending`, and `idempotency list --state unknown`, whose work is held."
  comparison_operator = "GreaterThanThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.work_queue[0].name
  }
  evaluation_periods = 5
  metric_name        = "ApproximateAgeOfOldestMessage"
  namespace          = "AWS/SQS"
  ok_actions         = local.alarm_actions
  period             = 60
  statistic          = "Maximum"
  threshold          = var.oldest_work_seconds
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "work_waiting" {
  alarm_name          = "${var.name}-WorkWaiting"
  alarm_actions       = local.alarm_actions
  alarm_description   = "The last sweep found accepted work that no worker had begun a quarter of an hour after it came, and queued it again. The alarm stays until a sweep finds none. Begin with `idempotency list --pending`; then the log of your worker, and its throttles."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.work.waiting"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 60
  statistic           = "Maximum"
  threshold           = 0
  treat_missing_data  = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "writes_refused" {
  alarm_name          = "${var.name}-WritesRefused"
  alarm_actions       = local.alarm_actions
  alarm_description   = "A completion was not committed, because domain writes were refused, and no answer is set for the refusal: a condition failed that has no answer, a read stayed stale, or `write` returned an error. With an Execution the outcome is unknown, and the provider is asked. With effects_in_transaction or single_transaction nothing was done, and the client may retry with the same key. Begin with the log of the guarded function, or of `reconcile`, which names the tables. Then `idempotency list --state unknown`."
  comparison_operator = "GreaterThanThreshold"
  evaluation_periods  = 1
  metric_name         = "api.idempotency.completion.denied.count"
  namespace           = var.metrics_namespace
  ok_actions          = local.alarm_actions
  period              = 300
  statistic           = "Sum"
  threshold           = 0
  treat_missing_data  = "notBreaching"
}

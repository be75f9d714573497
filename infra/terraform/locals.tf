# Made from infra/idempotency.yaml, whose comments give the reasons. Do not edit it.

locals {
  has_all_alarms             = var.alarms == "all"
  has_outbox                 = var.outbox != "off"
  has_outbox_alarms          = local.has_outbox && local.has_all_alarms
  has_outbox_function        = var.outbox == "on"
  has_outbox_function_alarms = local.has_outbox_function && local.has_all_alarms
  is_stopped                 = var.stopped
  makes_table                = var.existing_table_name == "no"
  notifies                   = var.alarm_topic_arn != ""
  reserves_outbox            = var.outbox_concurrency != 0
  reserves_stale             = var.stale_concurrency != 0
}

locals {
  table_name    = local.makes_table ? aws_dynamodb_table.idempotency_table[0].name : var.existing_table_name
  table_arn     = local.makes_table ? aws_dynamodb_table.idempotency_table[0].arn : "arn:${local.partition}:dynamodb:${local.region}:${local.account_id}:table/${var.existing_table_name}"
  stream_arn    = local.makes_table ? aws_dynamodb_table.idempotency_table[0].stream_arn : "arn:${local.partition}:dynamodb:${local.region}:${local.account_id}:table/${var.existing_table_name}/stream/${var.existing_table_stream}"
  alarm_actions = local.notifies ? [var.alarm_topic_arn] : null
  dashboard_alarms = join("\",\"", compact([
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.dead_workers[0].arn : null,
    aws_cloudwatch_metric_alarm.oldest_unknown.arn,
    aws_cloudwatch_metric_alarm.unknown_grow.arn,
    aws_cloudwatch_metric_alarm.outcomes_escalated.arn,
    aws_cloudwatch_metric_alarm.escalated_grow.arn,
    aws_cloudwatch_metric_alarm.outcomes_assumed.arn,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.operations_waiting[0].arn : null,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.operations_waiting_grow[0].arn : null,
    aws_cloudwatch_metric_alarm.dead_letters_waiting.arn,
    aws_cloudwatch_metric_alarm.dead_letters_grow.arn,
    aws_cloudwatch_metric_alarm.contradictions.arn,
    aws_cloudwatch_metric_alarm.contradictions_waiting.arn,
    aws_cloudwatch_metric_alarm.contradictions_old.arn,
    aws_cloudwatch_metric_alarm.dead_letters_old.arn,
    aws_cloudwatch_metric_alarm.reports_dead_old.arn,
    aws_cloudwatch_metric_alarm.reports_late.arn,
    aws_cloudwatch_metric_alarm.reports_grow.arn,
    aws_cloudwatch_metric_alarm.reports_dead.arn,
    aws_cloudwatch_metric_alarm.reports_dead_grow.arn,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.questions_late[0].arn : null,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.checks_late[0].arn : null,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.sweep_late[0].arn : null,
    aws_cloudwatch_metric_alarm.sweep_missing.arn,
    aws_cloudwatch_metric_alarm.stream_late.arn,
    aws_cloudwatch_metric_alarm.stream_silent.arn,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.metrics_silent[0].arn : null,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.stale_errors[0].arn : null,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.stale_throttled[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.outbox_old[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.outbox_failing[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.outbox_dead[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.outbox_dead_grow[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.outbox_not_buried[0].arn : null,
    aws_cloudwatch_metric_alarm.outbox_undelivered.arn,
    local.has_outbox_function_alarms ? aws_cloudwatch_metric_alarm.outbox_stream_late[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.outbox_stream_silent[0].arn : null,
    local.has_outbox_function_alarms ? aws_cloudwatch_metric_alarm.outbox_errors[0].arn : null,
    local.has_outbox_function_alarms ? aws_cloudwatch_metric_alarm.outbox_throttled[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.work_old[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.work_not_buried[0].arn : null,
    aws_cloudwatch_metric_alarm.work_waiting.arn,
    aws_cloudwatch_metric_alarm.work_abandoned.arn,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.work_dead[0].arn : null,
    local.has_outbox_alarms ? aws_cloudwatch_metric_alarm.work_dead_grow[0].arn : null,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.runs_failed[0].arn : null,
    aws_cloudwatch_metric_alarm.table_settings_off.arn,
    aws_cloudwatch_metric_alarm.store_errors.arn,
    aws_cloudwatch_metric_alarm.store_throttled.arn,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.key_misuse[0].arn : null,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.client_loops[0].arn : null,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.phases_mismatched[0].arn : null,
    aws_cloudwatch_metric_alarm.double_executions.arn,
    aws_cloudwatch_metric_alarm.answers_inconclusive.arn,
    aws_cloudwatch_metric_alarm.contradictions_unsent.arn,
    local.has_all_alarms ? aws_cloudwatch_metric_alarm.reports_unwritten[0].arn : null,
    aws_cloudwatch_metric_alarm.writes_refused.arn,
    aws_cloudwatch_metric_alarm.transactions_unconfirmed.arn,
  ]))
}

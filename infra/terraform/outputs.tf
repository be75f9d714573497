# Made from infra/idempotency.yaml, whose comments give the reasons. Do not edit it.

output "alarms_notify" {
  description = "Who hears of the alarms."
  value       = local.notifies ? var.alarm_topic_arn : "NOBODY: AlarmTopicArn is empty, so alarms only show in CloudWatch"
}

output "checks_queue_url" {
  description = "Queue of records to check, CHECKS_QUEUE_URL."
  value       = aws_sqs_queue.checks_queue.url
}

output "contradictions_queue_arn" {
  description = "ARN of the queue of contradictions."
  value       = aws_sqs_queue.contradictions_queue.arn
}

output "contradictions_queue_url" {
  description = "Queue of contradictions, for operators, CONTRADICTIONS_QUEUE_URL."
  value       = aws_sqs_queue.contradictions_queue.url
}

output "dead_letters_queue_arn" {
  description = "ARN of the dead-letter queue."
  value       = aws_sqs_queue.dead_letters_queue.arn
}

output "dead_letters_queue_url" {
  description = "Dead-letter queue, for operators, DEAD_LETTERS_QUEUE_URL."
  value       = aws_sqs_queue.dead_letters_queue.url
}

output "deferred_reports_dead_letters_queue_arn" {
  description = "ARN of the queue of dead letters of deferred reports."
  value       = aws_sqs_queue.deferred_reports_dead_letters_queue.arn
}

output "deferred_reports_dead_letters_queue_url" {
  description = "Dead letters of deferred reports, DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL."
  value       = aws_sqs_queue.deferred_reports_dead_letters_queue.url
}

output "deferred_reports_queue_arn" {
  description = "ARN of the queue of deferred reports. The function that takes its messages needs a time-out of 50 s at most."
  value       = aws_sqs_queue.deferred_reports_queue.arn
}

output "deferred_reports_queue_url" {
  description = "Queue of reports that workers could not write, DEFERRED_REPORTS_QUEUE_URL."
  value       = aws_sqs_queue.deferred_reports_queue.url
}

output "failed_runs_queue_arn" {
  description = "ARN of the queue of failed runs, for the on-failure destinations of your schedules and their functions."
  value       = aws_sqs_queue.failed_runs_queue.arn
}

output "failed_runs_queue_url" {
  description = "Queue of failed runs."
  value       = aws_sqs_queue.failed_runs_queue.url
}

output "metrics_namespace" {
  description = "The METRICS_NAMESPACE that your functions need."
  value       = var.metrics_namespace
}

output "outbox_dead_letters_queue_arn" {
  description = "ARN of the queue of dead letters of the outbox."
  value       = local.has_outbox ? aws_sqs_queue.outbox_dead_letters_queue[0].arn : null
}

output "outbox_dead_letters_queue_url" {
  description = "Dead letters of the outbox, OUTBOX_DEAD_LETTERS_QUEUE_URL."
  value       = local.has_outbox ? aws_sqs_queue.outbox_dead_letters_queue[0].url : null
}

output "outbox_function_name" {
  description = "The function that delivers what operations publish, and queues accepted work."
  value       = local.has_outbox_function ? aws_lambda_function.outbox_function[0].function_name : null
}

output "outbox_queue_arn" {
  description = "ARN of the queue that asks for deliveries, to which dead letters are sent back."
  value       = local.has_outbox ? aws_sqs_queue.outbox_queue[0].arn : null
}

output "outbox_queue_url" {
  description = "FIFO queue that asks for deliveries, OUTBOX_QUEUE_URL."
  value       = local.has_outbox ? aws_sqs_queue.outbox_queue[0].url : null
}

output "outbox_role_arn" {
  description = "ARN of the role of the function `outbox`, for the policies of the targets."
  value       = local.has_outbox_function ? aws_iam_role.outbox_role[0].arn : null
}

output "outbox_role_name" {
  description = "The role of the function `outbox`, to which you add permissions on the targets."
  value       = local.has_outbox_function ? aws_iam_role.outbox_role[0].name : null
}

output "outbox_topics" {
  description = "The OUTBOX_TOPICS that your functions which publish need."
  value       = local.has_outbox ? var.outbox_topics : null
}

output "reconcile_queue_arn" {
  description = "ARN of the queue of questions and provider reports. The function that takes its messages needs a time-out of 50 s at most."
  value       = aws_sqs_queue.reconcile_queue.arn
}

output "reconcile_queue_url" {
  description = "Queue of questions and provider reports, RECONCILE_QUEUE_URL."
  value       = aws_sqs_queue.reconcile_queue.url
}

output "stale_function_name" {
  description = "The function that finds dead workers."
  value       = aws_lambda_function.stale_function.function_name
}

output "stream_arn" {
  description = "ARN of the stream of the table of records."
  value       = local.stream_arn
}

output "sweep_queue_url" {
  description = "Queue of sweeps to continue, SWEEP_QUEUE_URL."
  value       = aws_sqs_queue.sweep_queue.url
}

output "table_arn" {
  description = "ARN of the table of records, for the permissions of your functions."
  value       = local.table_arn
}

output "table_name" {
  description = "Table of records, IDEMPOTENCY_TABLE."
  value       = local.table_name
}

output "work_dead_letters_queue_arn" {
  description = "ARN of the queue of dead letters of accepted work."
  value       = local.has_outbox ? aws_sqs_queue.work_dead_letters_queue[0].arn : null
}

output "work_dead_letters_queue_url" {
  description = "Dead letters of accepted work, WORK_DEAD_LETTERS_QUEUE_URL."
  value       = local.has_outbox ? aws_sqs_queue.work_dead_letters_queue[0].url : null
}

output "work_queue_arn" {
  description = "ARN of the queue of accepted work. Your worker takes its messages, with a time-out of a sixth of work_visibility_seconds at most."
  value       = local.has_outbox ? aws_sqs_queue.work_queue[0].arn : null
}

output "work_queue_url" {
  description = "Queue of accepted work, WORK_QUEUE_URL."
  value       = local.has_outbox ? aws_sqs_queue.work_queue[0].url : null
}

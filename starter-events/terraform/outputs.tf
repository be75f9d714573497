# Their names are those that `docs/operate.md` of the library reads.

output "alarms_notify" {
  description = "Who hears of the alarms."
  value       = module.idempotency.alarms_notify
}

output "url" {
  description = "The routes."
  value       = "${aws_apigatewayv2_api.http_api.api_endpoint}/orders"
}

output "orders_table_name" {
  description = "Table of orders."
  value       = aws_dynamodb_table.orders_table.name
}

output "billing_queue_url" {
  description = "Queue of orders to charge."
  value       = aws_sqs_queue.billing_queue.url
}

output "billing_queue_arn" {
  description = "The same queue's ARN, to which dead letters are sent back."
  value       = aws_sqs_queue.billing_queue.arn
}

output "billing_dead_letters_queue_url" {
  description = "Dead letters of orders to charge."
  value       = aws_sqs_queue.billing_dead_letters_queue.url
}

output "billing_dead_letters_queue_arn" {
  description = "ARN of these dead letters."
  value       = aws_sqs_queue.billing_dead_letters_queue.arn
}

output "idempotency_table_name" {
  description = "Table of records."
  value       = module.idempotency.table_name
}

output "checks_queue_url" {
  description = "Queue of records to check."
  value       = module.idempotency.checks_queue_url
}

output "sweep_queue_url" {
  description = "Queue of sweeps to continue."
  value       = module.idempotency.sweep_queue_url
}

output "reconcile_queue_url" {
  description = "Queue of questions and provider reports."
  value       = module.idempotency.reconcile_queue_url
}

output "deferred_reports_queue_url" {
  description = "Queue of deferred reports."
  value       = module.idempotency.deferred_reports_queue_url
}

output "deferred_reports_dead_letters_queue_url" {
  description = "Dead letters of deferred reports."
  value       = module.idempotency.deferred_reports_dead_letters_queue_url
}

output "contradictions_queue_url" {
  description = "Queue of contradictions, for operators."
  value       = module.idempotency.contradictions_queue_url
}

output "dead_letters_queue_url" {
  description = "Dead-letter queue, for operators."
  value       = module.idempotency.dead_letters_queue_url
}

output "failed_runs_queue_url" {
  description = "Queue of failed runs."
  value       = module.idempotency.failed_runs_queue_url
}

output "orders_function_name" {
  description = "The function that takes orders."
  value       = aws_lambda_function.orders_function.function_name
}

output "billing_function_name" {
  description = "The function that charges them."
  value       = aws_lambda_function.billing_function.function_name
}

output "reconcile_function_name" {
  description = "The function that asks the provider."
  value       = aws_lambda_function.reconcile_function.function_name
}

output "stale_function_name" {
  description = "The function that finds dead workers."
  value       = module.idempotency.stale_function_name
}

output "outbox_topics" {
  description = "Topics and their targets, for `idempotency settle --publish`."
  value       = module.idempotency.outbox_topics
}

output "outbox_queue_url" {
  description = "FIFO queue that asks for deliveries."
  value       = module.idempotency.outbox_queue_url
}

output "outbox_queue_arn" {
  description = "The same queue's ARN, to which dead letters are sent back."
  value       = module.idempotency.outbox_queue_arn
}

output "outbox_dead_letters_queue_url" {
  description = "Dead letters of the outbox."
  value       = module.idempotency.outbox_dead_letters_queue_url
}

output "outbox_dead_letters_queue_arn" {
  description = "ARN of these dead letters."
  value       = module.idempotency.outbox_dead_letters_queue_arn
}

output "work_queue_url" {
  description = "Queue of accepted work."
  value       = module.idempotency.work_queue_url
}

output "work_dead_letters_queue_url" {
  description = "Dead letters of accepted work."
  value       = module.idempotency.work_dead_letters_queue_url
}

output "outbox_function_name" {
  description = "Name of the function that delivers what operations publish, and queues accepted work."
  value       = module.idempotency.outbox_function_name
}


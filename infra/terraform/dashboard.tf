# Made from infra/idempotency.yaml, whose comments give the reasons. Do not edit it.

resource "aws_cloudwatch_dashboard" "idempotency_dashboard" {
  dashboard_body = <<-EOT
    {"widgets": [
      {"type": "alarm", "x": 0, "y": 0, "width": 24, "height": 6, "properties": {
        "title": "Alarms", "sortBy": "stateUpdatedTimestamp", "alarms": ["${local.dashboard_alarms}"]}},
      {"type": "metric", "x": 0, "y": 6, "width": 8, "height": 6, "properties": {
        "title": "Requests by outcome, and replays in %", "region": "${local.region}", "stat": "Sum", "period": 300, "metrics": [
          [{"expression": "100 * FILL(replays, 0) / SUM([replays, created, accepted, committed])", "label": "replays, in %", "yAxis": "right"}],
          ["${var.metrics_namespace}", "api.idempotency.reserve.created.count", {"id": "created"}],
          ["${var.metrics_namespace}", "api.idempotency.reserve.accepted.count", {"id": "accepted"}],
          ["${var.metrics_namespace}", "api.idempotency.transaction.committed.count", {"id": "committed"}],
          ["${var.metrics_namespace}", "api.idempotency.reserve.replay.count", {"id": "replays"}],
          ["${var.metrics_namespace}", "api.idempotency.reserve.in_progress.count"],
          ["${var.metrics_namespace}", "api.idempotency.reserve.unknown.count"],
          ["${var.metrics_namespace}", "api.idempotency.reserve.failed_retry.count"],
          ["${var.metrics_namespace}", "api.idempotency.reserve.key_misuse.count"],
          ["${var.metrics_namespace}", "api.idempotency.reserve.too_old.count"],
          ["${var.metrics_namespace}", "api.idempotency.reserve.too_late.count"],
          ["${var.metrics_namespace}", "api.idempotency.unguarded.count"]]}},
      {"type": "metric", "x": 8, "y": 6, "width": 8, "height": 6, "properties": {
        "title": "What the guard adds, in milliseconds", "region": "${local.region}", "period": 300, "metrics": [
          ["${var.metrics_namespace}", "api.idempotency.reserve.latency", {"stat": "p50", "label": "reserve, p50"}],
          ["${var.metrics_namespace}", "api.idempotency.reserve.latency", {"stat": "p99", "label": "reserve, p99"}],
          ["${var.metrics_namespace}", "api.idempotency.complete.latency", {"stat": "p50", "label": "complete, p50"}],
          ["${var.metrics_namespace}", "api.idempotency.complete.latency", {"stat": "p99", "label": "complete, p99"}]]}},
      {"type": "metric", "x": 16, "y": 6, "width": 8, "height": 6, "properties": {
        "title": "Handlers, in milliseconds", "region": "${local.region}", "period": 300, "metrics": [
          ["${var.metrics_namespace}", "api.idempotency.handler.latency", {"stat": "p50", "label": "handler, p50"}],
          ["${var.metrics_namespace}", "api.idempotency.handler.latency", {"stat": "p99", "label": "handler, p99"}]]}},
      {"type": "metric", "x": 0, "y": 12, "width": 8, "height": 6, "properties": {
        "title": "Open, by state", "region": "${local.region}", "stat": "Maximum", "period": 300, "metrics": [
          ["${var.metrics_namespace}", "api.idempotency.unknown.outcomes"],
          ["${var.metrics_namespace}", "api.idempotency.unknown.escalated"],
          ["${var.metrics_namespace}", "api.idempotency.between_workers.operations"]]}},
      {"type": "metric", "x": 8, "y": 12, "width": 8, "height": 6, "properties": {
        "title": "Age of what is open, in seconds", "region": "${local.region}", "stat": "Maximum", "period": 300, "metrics": [
          ["${var.metrics_namespace}", "api.idempotency.unknown.oldest.seconds"],
          ["${var.metrics_namespace}", "api.idempotency.completion.deferred.age.seconds"],
          ["AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", "${aws_sqs_queue.deferred_reports_queue.name}", {"label": "oldest deferred report"}],
          ["AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", "${aws_sqs_queue.reconcile_queue.name}", {"label": "oldest question"}]]}},
      {"type": "metric", "x": 16, "y": 12, "width": 8, "height": 6, "properties": {
        "title": "How outcomes become unknown, and how they end", "region": "${local.region}", "stat": "Sum", "period": 300, "metrics": [
          ["${var.metrics_namespace}", "api.idempotency.completion.inconclusive.count"],
          ["${var.metrics_namespace}", "api.idempotency.zombie_key.count"],
          ["${var.metrics_namespace}", "api.idempotency.reconcile.resolved.count"],
          ["${var.metrics_namespace}", "api.idempotency.escalated.count"]]}},
      {"type": "metric", "x": 0, "y": 18, "width": 8, "height": 6, "properties": {
        "title": "Dead letters", "region": "${local.region}", "stat": "Maximum", "period": 300, "metrics": [
          ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", "${aws_sqs_queue.dead_letters_queue.name}", {"label": "wait"}],
          ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", "${aws_sqs_queue.contradictions_queue.name}", {"label": "contradictions wait"}],
          ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", "${aws_sqs_queue.deferred_reports_dead_letters_queue.name}", {"label": "deferred reports wait"}],
          ["${var.metrics_namespace}", "api.idempotency.message.dead.count", {"stat": "Sum"}]]}},
      {"type": "metric", "x": 8, "y": 18, "width": 8, "height": 6, "properties": {
        "title": "The store fails", "region": "${local.region}", "stat": "Sum", "period": 300, "metrics": [
          ["${var.metrics_namespace}", "api.idempotency.store.error.count"],
          ["${var.metrics_namespace}", "api.idempotency.store.throttled.count"],
          ["${var.metrics_namespace}", "api.idempotency.completion.deferred.count"]]}},
      {"type": "metric", "x": 16, "y": 18, "width": 8, "height": 6, "properties": {
        "title": "Units that the table consumes", "region": "${local.region}", "stat": "Sum", "period": 300, "metrics": [
          ["AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", "${local.table_name}", {"label": "written"}],
          ["AWS/DynamoDB", "ConsumedReadCapacityUnits", "TableName", "${local.table_name}", {"label": "read"}],
          ["AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", "${local.table_name}", "GlobalSecondaryIndexName", "reconcile", {"label": "written, index"}],
          ["AWS/DynamoDB", "ConsumedReadCapacityUnits", "TableName", "${local.table_name}", "GlobalSecondaryIndexName", "reconcile", {"label": "read, index"}]]}}%{if local.has_outbox},
    {"type": "metric", "x": 0, "y": 24, "width": 8, "height": 6, "properties": {
      "title": "Messages of the outbox", "region": "${local.region}", "stat": "Sum", "period": 300, "metrics": [
        ["${var.metrics_namespace}", "api.idempotency.outbox.published.count"],
        ["${var.metrics_namespace}", "api.idempotency.outbox.delivered.count"],
        ["${var.metrics_namespace}", "api.idempotency.outbox.not_delivered.count"],
        ["${var.metrics_namespace}", "api.idempotency.outbox.undelivered", {"stat": "Maximum"}]]}},
    {"type": "metric", "x": 8, "y": 24, "width": 8, "height": 6, "properties": {
      "title": "From commit to delivery, in milliseconds", "region": "${local.region}", "period": 300, "metrics": [
        ["${var.metrics_namespace}", "api.idempotency.outbox.delivery_age", {"stat": "p99", "label": "p99"}]]}},
    {"type": "metric", "x": 16, "y": 24, "width": 8, "height": 6, "properties": {
      "title": "Oldest delivery and oldest work, in seconds", "region": "${local.region}", "stat": "Maximum", "period": 300, "metrics": [
        ["AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", "${aws_sqs_queue.outbox_queue[0].name}", {"label": "delivery"}],
        ["AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", "${aws_sqs_queue.work_queue[0].name}", {"label": "work"}]]}},
    {"type": "metric", "x": 0, "y": 30, "width": 8, "height": 6, "properties": {
      "title": "Accepted work", "region": "${local.region}", "stat": "Sum", "period": 300, "metrics": [
        ["${var.metrics_namespace}", "api.idempotency.work.abandoned.count"],
        ["${var.metrics_namespace}", "api.idempotency.work.waiting", {"stat": "Maximum"}]]}},
    {"type": "metric", "x": 8, "y": 30, "width": 8, "height": 6, "properties": {
      "title": "Dead letters of outbox and work", "region": "${local.region}", "stat": "Maximum", "period": 300, "metrics": [
        ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", "${aws_sqs_queue.outbox_dead_letters_queue[0].name}", {"label": "deliveries"}],
        ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", "${aws_sqs_queue.work_dead_letters_queue[0].name}", {"label": "work"}]]}}
    %{endif}
    ]}
  EOT
  dashboard_name = "${var.name}-operations"
}

resource "aws_cloudwatch_query_definition" "tenants_looking_up" {
  name         = "${var.name}/tenants that look up keys"
  query_string = <<-EOT
    filter ispresent(tenant)
    | stats sum(`api.idempotency.look_up.empty.count`) as without_operation, sum(`api.idempotency.look_up.over_bound.count`) as refused by tenant
    | sort without_operation desc
    | limit 20
  EOT
}

resource "aws_cloudwatch_query_definition" "tenants_misusing" {
  name         = "${var.name}/tenants that reuse keys"
  query_string = <<-EOT
    filter ispresent(tenant)
    | stats sum(`api.idempotency.reserve.key_misuse.count`) as misused, sum(`api.idempotency.reserve.created.count`) as begun by tenant
    | sort misused desc
    | limit 20
  EOT
}

resource "aws_cloudwatch_query_definition" "tenants_refused" {
  name         = "${var.name}/tenants over their bounds"
  query_string = <<-EOT
    filter ispresent(tenant)
    | stats sum(`api.idempotency.reserve.over_bound.count`) as refused, sum(`api.idempotency.reserve.stopped.count`) as stopped, sum(`api.idempotency.reserve.created.count`) as begun, sum(`api.idempotency.reserve.accepted.count`) as accepted, sum(`api.idempotency.transaction.committed.count`) as committed by tenant
    | sort refused desc, stopped desc
    | limit 20
  EOT
}

resource "aws_cloudwatch_query_definition" "tenants_replayed" {
  name         = "${var.name}/tenants with most replays"
  query_string = <<-EOT
    filter ispresent(tenant)
    | stats sum(`api.idempotency.reserve.replay.count`) as replays, sum(`api.idempotency.reserve.created.count`) as begun by tenant
    | sort replays desc
    | limit 20
  EOT
}

resource "aws_cloudwatch_query_definition" "tenants_slow" {
  name         = "${var.name}/tenants with slow requests"
  query_string = <<-EOT
    filter ispresent(tenant)
    | stats pct(`api.idempotency.handler.latency.0`, 99) as handler_ms, pct(`api.idempotency.reserve.latency.0`, 99) as reserve_ms, pct(`api.idempotency.complete.latency.0`, 99) as complete_ms, count(*) as requests by tenant
    | sort handler_ms desc
    | limit 20
  EOT
}

resource "aws_cloudwatch_query_definition" "tenants_unknown" {
  name         = "${var.name}/tenants with unknown outcomes"
  query_string = <<-EOT
    filter ispresent(tenant)
    | stats sum(`api.idempotency.reserve.unknown.count`) as unknown, sum(`api.idempotency.reserve.created.count`) as begun by tenant
    | sort unknown desc
    | limit 20
  EOT
}

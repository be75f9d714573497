# Made from infra/idempotency.yaml, whose comments give the reasons. Do not edit it.

variable "alarm_topic_arn" {
  description = "SNS topic that is notified when an alarm begins and when it is over. If empty, there are no notifications."
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = can(regex("^(arn:\\S+)?$", var.alarm_topic_arn))
    error_message = "alarm_topic_arn must match ^(arn:\\S+)?$."
  }
}

variable "alarms" {
  description = "Which alarms the stack has: \"all\", or only the \"essential\" ones, which are enough for one small route. Some incidents are then reported later, and some not at all. docs/alarms.md says which, and why."
  type        = string
  default     = "all"
  nullable    = false

  validation {
    condition     = contains(["all", "essential"], var.alarms)
    error_message = "alarms must be one of all, essential."
  }
}

variable "batching_window_seconds" {
  description = "Seconds for which changes of records are gathered into a batch, in which completions cancel insertions. Operations that take longer cost one message and one read each. A dead worker is found at most this much later."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.batching_window_seconds >= 0 && var.batching_window_seconds <= 300
    error_message = "batching_window_seconds must be from 0 to 300."
  }
}

variable "dead_workers_tolerated" {
  description = "Dead workers within 5 minutes that do not raise an alarm yet."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.dead_workers_tolerated >= 0
    error_message = "dead_workers_tolerated must be 0 or more."
  }
}

variable "deletion_protection" {
  description = "Whether DynamoDB refuses to delete the table."
  type        = bool
  default     = true
  nullable    = false
}

variable "existing_table_name" {
  description = "Name of an existing table of records, such as a restored one; \"no\" makes the stack create one. A new table is empty: keys that were used before are unknown in it, and would run again."
  type        = string
  default     = "no"
  nullable    = false

  validation {
    condition     = can(regex("^(no|[A-Za-z0-9_.-]{3,255})$", var.existing_table_name))
    error_message = "existing_table_name must match ^(no|[A-Za-z0-9_.-]{3,255})$."
  }
}

variable "existing_table_stream" {
  description = "That table's LatestStreamLabel, as describe-table prints it. The stream must have new and old images."
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = can(regex("^[0-9T:.-]*$", var.existing_table_stream))
    error_message = "existing_table_stream must match ^[0-9T:.-]*$."
  }

  validation {
    condition     = var.existing_table_name == "no" || var.existing_table_stream != ""
    error_message = "existing_table_name needs the existing_table_stream of the same table."
  }
}

variable "inconclusive_tolerated" {
  description = "Inconclusive answers, such as 403 or 429 of a handler, within 5 minutes that do not raise an alarm yet."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.inconclusive_tolerated >= 0
    error_message = "inconclusive_tolerated must be 0 or more."
  }
}

variable "key_misuse_tolerated" {
  description = "Keys reused with another request, and refused look-ups of keys, within 5 minutes that do not raise an alarm yet."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.key_misuse_tolerated >= 0
    error_message = "key_misuse_tolerated must be 0 or more."
  }
}

variable "log_retention_days" {
  description = "Days that logs are kept."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = contains([1, 7, 14, 30, 60, 90, 180, 365, 731, 1096, 1827, 2557, 3653], var.log_retention_days)
    error_message = "log_retention_days must be one of 1, 7, 14, 30, 60, 90, 180, 365, 731, 1096, 1827, 2557, 3653."
  }
}

variable "metrics_namespace" {
  description = "CloudWatch namespace of the functions' metrics. All functions on this table need it as METRICS_NAMESPACE, and no other function of the account may use it, because the alarms watch it."
  type        = string
  default     = "lambda-idempotency"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_][A-Za-z0-9_./#-]{0,254}$", var.metrics_namespace))
    error_message = "metrics_namespace must match ^[A-Za-z0-9_][A-Za-z0-9_./#-]{0,254}$."
  }
}

variable "oldest_unknown_seconds" {
  description = "Age of the oldest unknown outcome that raises an alarm."
  type        = number
  default     = 3600
  nullable    = false

  validation {
    condition     = var.oldest_unknown_seconds >= 60
    error_message = "oldest_unknown_seconds must be 60 or more."
  }
}

variable "oldest_work_seconds" {
  description = "Age of accepted work in its queue that raises an alarm. Longer than the longest execution, shorter than the time after which your operations end unclaimed."
  type        = number
  default     = 1800
  nullable    = false

  validation {
    condition     = var.oldest_work_seconds >= 60
    error_message = "oldest_work_seconds must be 60 or more."
  }
}

variable "operations_waiting_tolerated" {
  description = "Operations that wait between workers for their clients' retries, and that do not raise an alarm yet."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.operations_waiting_tolerated >= 0
    error_message = "operations_waiting_tolerated must be 0 or more."
  }
}

variable "outbox" {
  description = "Whether the stack has the function `outbox`, which delivers what operations publish and queues accepted work, with its queues, sweep and alarms. \"own\" leaves out the function and its role: it is yours, for instance because it has targets of your own. \"off\" only if no operation publishes, and none is asynchronous: nothing else would do it."
  type        = string
  default     = "on"
  nullable    = false

  validation {
    condition     = contains(["on", "own", "off"], var.outbox)
    error_message = "outbox must be one of on, own, off."
  }
}

variable "outbox_concurrency" {
  description = "Concurrent executions reserved for `outbox`, 0 for none. If you reserve any, 11 or more: 10 for deliveries, and one for each shard of the stream."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.outbox_concurrency >= 0
    error_message = "outbox_concurrency must be 0 or more."
  }
}

variable "outbox_topics" {
  description = "OUTBOX_TOPICS: the topics that operations publish, each with its target, separated by spaces, such as \"order.placed=bus:shop\". All functions that publish need the same list: the output outbox_topics. Give the role outbox_role_name permission to send to each target. \"none\" if no operation publishes."
  type        = string
  default     = "none"
  nullable    = false

  validation {
    condition     = length(var.outbox_topics) >= 1
    error_message = "outbox_topics must have 1 characters or more."
  }

  validation {
    condition     = var.outbox != "off" || var.outbox_topics == "none"
    error_message = "outbox_topics needs the Outbox, which is off."
  }
}

variable "outcomes_assumed_tolerated" {
  description = "Unknown outcomes within 15 minutes that are released because the provider does not find them, and that do not raise an alarm yet."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.outcomes_assumed_tolerated >= 0
    error_message = "outcomes_assumed_tolerated must be 0 or more."
  }
}

variable "replays_tolerated" {
  description = "Replays within 5 minutes, beyond one for five new operations, that do not raise an alarm yet. A client that sends one key each second makes 300."
  type        = number
  default     = 100
  nullable    = false

  validation {
    condition     = var.replays_tolerated >= 0
    error_message = "replays_tolerated must be 0 or more."
  }
}

variable "stale_concurrency" {
  description = "Concurrent executions reserved for `stale`, 0 for none. If you reserve any, 9 or more: 5 for checks, 2 for sweeps, 1 for the schedule, and one for each shard of the stream. A table has about one shard per 1,000 writes a second, and 4 at first."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.stale_concurrency >= 0
    error_message = "stale_concurrency must be 0 or more."
  }
}

variable "stopped" {
  description = "Whether nothing invokes the stack's functions. True for the deployment of a restored table, until what it forgot is held."
  type        = bool
  default     = false
  nullable    = false
}

variable "store_errors_tolerated" {
  description = "Failed calls to the table within 5 minutes that do not raise an alarm yet."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.store_errors_tolerated >= 0
    error_message = "store_errors_tolerated must be 0 or more."
  }
}

variable "sweep_missing_hours" {
  description = "Hours without a finished sweep that raise an alarm: the time between two sweeps, and two hours for one that takes longer than the one before."
  type        = number
  default     = 26
  nullable    = false

  validation {
    condition     = var.sweep_missing_hours >= 2 && var.sweep_missing_hours <= 168
    error_message = "sweep_missing_hours must be from 2 to 168."
  }
}

variable "sweep_schedule" {
  description = "When a sweep begins, in UTC, as EventBridge Scheduler writes it."
  type        = string
  default     = "cron(0 3 * * ? *)"
  nullable    = false

  validation {
    condition     = length(var.sweep_schedule) >= 1
    error_message = "sweep_schedule must have 1 characters or more."
  }
}

variable "sweep_units_per_second" {
  description = "SWEEP_UNITS_PER_SECOND: how many read units a second a sweep takes, each 8 KB of the table. docs/deploy.md says how long a sweep takes then."
  type        = number
  default     = 50
  nullable    = false

  validation {
    condition     = var.sweep_units_per_second >= 1
    error_message = "sweep_units_per_second must be 1 or more."
  }
}

variable "transactions_unconfirmed_tolerated" {
  description = "Single transactions within 5 minutes that the store did not confirm, and that do not raise an alarm yet."
  type        = number
  default     = 5
  nullable    = false

  validation {
    condition     = var.transactions_unconfirmed_tolerated >= 0
    error_message = "transactions_unconfirmed_tolerated must be 0 or more."
  }
}

variable "work_visibility_seconds" {
  description = "Six time-outs of your worker of accepted work. For so long the work of a worker that was killed is left alone, so set it. The default is six times the longest time-out that Lambda has."
  type        = number
  default     = 5400
  nullable    = false

  validation {
    condition     = var.work_visibility_seconds >= 6 && var.work_visibility_seconds <= 5400
    error_message = "work_visibility_seconds must be from 6 to 5400."
  }
}

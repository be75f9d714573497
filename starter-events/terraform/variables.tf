# The parameters of `template.yaml`.

variable "name" {
  description = "Begins the name of each resource. Each of an account and Region needs its own: queues and alarms of one name overwrite each other. At most 20 characters."
  type        = string
}

variable "provider_url" {
  description = "Base address of the payment provider."
  type        = string

  validation {
    condition     = can(regex("^https://\\S+$", var.provider_url))
    error_message = "It must be an address that begins with https://."
  }
}

variable "jwt_issuer" {
  description = "Issuer of the callers' tokens. The API reads its keys from the OpenID configuration found there."
  type        = string

  validation {
    condition     = can(regex("^https://\\S+$", var.jwt_issuer))
    error_message = "It must be an address that begins with https://."
  }
}

variable "jwt_audience" {
  description = "Accepted audiences. A token must name one of them."
  type        = list(string)
}

variable "alarm_topic_arn" {
  description = "SNS topic that is notified when an alarm begins and when it is over. If empty, there are no notifications."
  type        = string
  default     = ""
}

variable "existing_table_name" {
  description = "Name of an existing table of records, such as a restored one. \"no\" creates a new one, in which keys that were used before are unknown, and would run again."
  type        = string
}

variable "existing_table_stream" {
  description = "That table's LatestStreamLabel, as describe-table prints it. The stream must have new and old images."
  type        = string
  default     = ""
}

variable "stopped" {
  description = "Whether nothing invokes the stack's functions. True for the deployment of a restored table, until what it forgot is held."
  type        = bool
  default     = false
}


variable "closed" {
  description = "Whether neither the API nor the consumer takes anything. True while operators hold or correct records."
  type        = bool
  default     = false
}

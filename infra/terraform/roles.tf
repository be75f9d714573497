# Made from infra/idempotency.yaml, whose comments give the reasons. Do not edit it.

resource "aws_iam_role" "outbox_role" {
  count       = local.has_outbox_function ? 1 : 0
  name_prefix = "${var.name}-outbox-"
  assume_role_policy = jsonencode({
    Statement = [
      {
        Action = "sts:AssumeRole"
        Effect = "Allow"
        Principal = {
          Service = "lambda.amazonaws.com"
        }
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy" "outbox_role" {
  count = local.has_outbox_function ? 1 : 0
  name  = "outbox"
  role  = aws_iam_role.outbox_role[0].name
  policy = jsonencode({
    Statement = [
      {
        Action   = ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:Query"]
        Effect   = "Allow"
        Resource = local.table_arn
        Sid      = "Messages"
      },
      {
        Action = [
          "dynamodb:DescribeStream",
          "dynamodb:GetRecords",
          "dynamodb:GetShardIterator",
          "dynamodb:ListStreams",
        ]
        Effect   = "Allow"
        Resource = local.stream_arn
        Sid      = "Changes"
      },
      {
        Action = [
          "sqs:ChangeMessageVisibility",
          "sqs:DeleteMessage",
          "sqs:GetQueueAttributes",
          "sqs:ReceiveMessage",
          "sqs:SendMessage",
        ]
        Effect   = "Allow"
        Resource = aws_sqs_queue.outbox_queue[0].arn
        Sid      = "Deliveries"
      },
      {
        Action = "sqs:SendMessage"
        Effect = "Allow"
        Resource = [
          aws_sqs_queue.work_queue[0].arn,
          aws_sqs_queue.outbox_dead_letters_queue[0].arn,
          aws_sqs_queue.dead_letters_queue.arn,
        ]
        Sid = "WorkAndDeadLetters"
      },
      {
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Effect   = "Allow"
        Resource = "${aws_cloudwatch_log_group.outbox_logs[0].arn}:*"
        Sid      = "Logs"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role" "schedules_role" {
  name_prefix = "${var.name}-schedules-"
  assume_role_policy = jsonencode({
    Statement = [
      {
        Action = "sts:AssumeRole"
        Condition = {
          StringEquals = {
            "aws:SourceAccount" = local.account_id
          }
        }
        Effect = "Allow"
        Principal = {
          Service = "scheduler.amazonaws.com"
        }
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy" "schedules_role" {
  name = "schedules"
  role = aws_iam_role.schedules_role.name
  policy = jsonencode({
    Statement = [
      {
        Action   = "lambda:InvokeFunction"
        Effect   = "Allow"
        Resource = aws_lambda_function.stale_function.arn
        Sid      = "Sweeps"
      },
      {
        Action   = "sqs:SendMessage"
        Effect   = "Allow"
        Resource = aws_sqs_queue.failed_runs_queue.arn
        Sid      = "FailedRuns"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role" "stale_role" {
  name_prefix = "${var.name}-stale-"
  assume_role_policy = jsonencode({
    Statement = [
      {
        Action = "sts:AssumeRole"
        Effect = "Allow"
        Principal = {
          Service = "lambda.amazonaws.com"
        }
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_iam_role_policy" "stale_role" {
  name = "stale"
  role = aws_iam_role.stale_role.name
  policy = jsonencode({
    Statement = concat(
      [
        {
          Action   = ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Scan"]
          Effect   = "Allow"
          Resource = local.table_arn
          Sid      = "Records"
        },
        {
          Action   = ["dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"]
          Effect   = "Allow"
          Resource = local.table_arn
          Sid      = "Settings"
        },
        {
          Action = [
            "dynamodb:DescribeStream",
            "dynamodb:GetRecords",
            "dynamodb:GetShardIterator",
            "dynamodb:ListStreams",
          ]
          Effect   = "Allow"
          Resource = local.stream_arn
          Sid      = "Changes"
        },
        {
          Action   = ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage", "sqs:SendMessage"]
          Effect   = "Allow"
          Resource = [aws_sqs_queue.checks_queue.arn, aws_sqs_queue.sweep_queue.arn]
          Sid      = "ChecksAndSweeps"
        },
        {
          Action = "sqs:SendMessage"
          Effect = "Allow"
          Resource = [
            aws_sqs_queue.contradictions_queue.arn,
            aws_sqs_queue.dead_letters_queue.arn,
            aws_sqs_queue.failed_runs_queue.arn,
          ]
          Sid = "ForOperators"
        },
      ],
      local.has_outbox ? [
        {
          Action   = "sqs:SendMessage"
          Effect   = "Allow"
          Resource = [aws_sqs_queue.outbox_queue[0].arn, aws_sqs_queue.work_queue[0].arn]
          Sid      = "DeliveriesAndWork"
        },
      ] : [],
      [
        {
          Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
          Effect   = "Allow"
          Resource = "${aws_cloudwatch_log_group.stale_logs.arn}:*"
          Sid      = "Logs"
        },
      ],
    )
    Version = "2012-10-17"
  })
}

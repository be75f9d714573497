# The rows, the API, and its function.

resource "aws_dynamodb_table" "orders_table" {
  name                        = "${var.name}-orders"
  billing_mode                = "PAY_PER_REQUEST"
  deletion_protection_enabled = true
  hash_key                    = "tenant"
  range_key                   = "id"

  attribute {
    name = "tenant"
    type = "S"
  }

  attribute {
    name = "id"
    type = "S"
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = true
  }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_apigatewayv2_api" "http_api" {
  name          = var.name
  protocol_type = "HTTP"
}

resource "aws_apigatewayv2_authorizer" "http_api" {
  api_id           = aws_apigatewayv2_api.http_api.id
  name             = "Jwt"
  authorizer_type  = "JWT"
  identity_sources = ["$request.header.Authorization"]

  jwt_configuration {
    issuer   = var.jwt_issuer
    audience = var.jwt_audience
  }
}

resource "aws_apigatewayv2_stage" "http_api" {
  api_id      = aws_apigatewayv2_api.http_api.id
  name        = "$default"
  auto_deploy = true

  # For all callers together: an HTTP API throttles no single one. What a caller floods, the reconciler may have to ask about.
  default_route_settings {
    throttling_rate_limit  = 100
    throttling_burst_limit = 200
  }

  # It has what no function sees: refused tokens, throttled requests, and functions that do not start.
  access_log_settings {
    destination_arn = aws_cloudwatch_log_group.api_logs.arn
    # The route, not the path: a path may hold an idempotency key.
    format = jsonencode({
      requestId         = "$context.requestId"
      time              = "$context.requestTime"
      route             = "$context.routeKey"
      status            = "$context.status"
      latency           = "$context.responseLatency"
      integrationStatus = "$context.integration.status"
      error             = "$context.error.message"
      authorizerError   = "$context.authorizer.error"
    })
  }
}

# Groups with this prefix do not use up the account's log resource policy, whose size is limited.
resource "aws_cloudwatch_log_group" "api_logs" {
  name              = "/aws/vendedlogs/apis/${var.name}"
  retention_in_days = 30
}

resource "aws_apigatewayv2_integration" "orders_function" {
  api_id                 = aws_apigatewayv2_api.http_api.id
  integration_type       = "AWS_PROXY"
  integration_uri        = aws_lambda_function.orders_function.invoke_arn
  payload_format_version = "2.0"
}

resource "aws_apigatewayv2_route" "orders_function_place" {
  api_id             = aws_apigatewayv2_api.http_api.id
  route_key          = "POST /orders"
  target             = "integrations/${aws_apigatewayv2_integration.orders_function.id}"
  authorization_type = "JWT"
  authorizer_id      = aws_apigatewayv2_authorizer.http_api.id
}

resource "aws_apigatewayv2_route" "orders_function_read" {
  api_id             = aws_apigatewayv2_api.http_api.id
  route_key          = "GET /orders/{id}"
  target             = "integrations/${aws_apigatewayv2_integration.orders_function.id}"
  authorization_type = "JWT"
  authorizer_id      = aws_apigatewayv2_authorizer.http_api.id
}

resource "aws_lambda_permission" "orders_function" {
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.orders_function.function_name
  principal     = "apigateway.amazonaws.com"
  source_arn    = "${aws_apigatewayv2_api.http_api.execution_arn}/*/*"
}

# Writes an order, and publishes it.
resource "aws_lambda_function" "orders_function" {
  function_name    = "${var.name}-orders"
  filename         = "${local.zips}/orders/bootstrap.zip"
  source_code_hash = filebase64sha256("${local.zips}/orders/bootstrap.zip")
  handler          = "bootstrap"
  runtime          = "provided.al2023"
  architectures    = ["arm64"]
  memory_size      = 256
  # Shorter than the gateway's 30 s.
  timeout = 20
  role    = aws_iam_role.orders_role.arn
  # An apply undoes what an operator has stopped by hand. So the variables stop it too.
  reserved_concurrent_executions = local.is_closed ? 0 : -1

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.orders_logs.name
  }

  environment {
    variables = {
      METRICS_NAMESPACE = module.idempotency.metrics_namespace
      IDEMPOTENCY_TABLE = module.idempotency.table_name
      ORDERS_TABLE      = aws_dynamodb_table.orders_table.name
      OUTBOX_TOPICS     = module.idempotency.outbox_topics
    }
  }

  # Lambda refuses an event source mapping, and a destination, if the role may not use it.
  depends_on = [aws_iam_role_policy.orders_role]
}

resource "aws_iam_role" "orders_role" {
  name_prefix = "${var.name}-orders-"
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

resource "aws_iam_role_policy" "orders_role" {
  name = "orders"
  role = aws_iam_role.orders_role.name
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
        Action   = ["dynamodb:GetItem", "dynamodb:PutItem"]
        Resource = aws_dynamodb_table.orders_table.arn
      },
      {
        Sid      = "Logs"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = "${aws_cloudwatch_log_group.orders_logs.arn}:*"
      },
    ]
  })
}

resource "aws_cloudwatch_log_group" "orders_logs" {
  name              = "/aws/lambda/${var.name}-orders"
  retention_in_days = 30
}

resource "aws_cloudwatch_metric_alarm" "orders_errors" {
  alarm_name          = "${var.name}-OrdersErrors"
  alarm_description   = "The function that takes orders crashes, runs out of time, or does not start: its clients get an error of API Gateway, and send their orders again. Begin with the log of `orders`."
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = aws_lambda_function.orders_function.function_name }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}

# What no counter of the library shows: the function gets no concurrency, or does not answer.
resource "aws_cloudwatch_metric_alarm" "orders_fail" {
  alarm_name          = "${var.name}-OrdersFail"
  alarm_description   = "Three or more requests of the API got 5xx within a quarter of an hour: a table does not answer, or the function is throttled or fails. Begin with the log of the API, whose `error` and `integrationStatus` say whether the function answered; then the log of `orders`."
  namespace           = "AWS/ApiGateway"
  metric_name         = "5xx"
  dimensions          = { ApiId = aws_apigatewayv2_api.http_api.id }
  statistic           = "Sum"
  period              = 900
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 2
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
}


// An example: a stack with the template, and one guarded function.

import { App, Duration, Stack } from "aws-cdk-lib";
import * as iam from "aws-cdk-lib/aws-iam";
import * as lambda from "aws-cdk-lib/aws-lambda";
import { Idempotency } from "./idempotency.js";
import parameters from "./parameters.json" with { type: "json" };

const app = new App();
const stack = new Stack(app, "Charges");
const setting = (name: string): string => app.node.getContext(name);

const idempotency = new Idempotency(stack, "Idempotency", {
  template: "../idempotency.yaml",
  staleZip: setting("staleZip"),
  outboxZip: setting("outboxZip"),
  parameters,
});

const charges = new lambda.Function(stack, "Charges", {
  runtime: lambda.Runtime.PROVIDED_AL2023,
  architecture: lambda.Architecture.ARM_64,
  handler: "bootstrap",
  code: lambda.Code.fromAsset(setting("chargesZip")),
  memorySize: 256,
  // Longer than the provider's time-out, and shorter than the gateway's 30 s.
  timeout: Duration.seconds(20),
  loggingFormat: lambda.LoggingFormat.JSON,
  environment: {
    IDEMPOTENCY_TABLE: idempotency.output("TableName"),
    METRICS_NAMESPACE: idempotency.output("MetricsNamespace"),
    DEFERRED_REPORTS_QUEUE_URL: idempotency.output("DeferredReportsQueueUrl"),
    PROVIDER_URL: setting("providerUrl"),
  },
});
// The guard needs only conditional puts and consistent reads: no update, no delete.
charges.addToRolePolicy(
  new iam.PolicyStatement({
    actions: ["dynamodb:GetItem", "dynamodb:PutItem"],
    resources: [idempotency.output("TableArn")],
  }),
);
// Reports that cannot be written to the table are deferred.
charges.addToRolePolicy(
  new iam.PolicyStatement({
    actions: ["sqs:SendMessage"],
    resources: [idempotency.output("DeferredReportsQueueArn")],
  }),
);

// The template `idempotency.yaml` as a construct. Copy this file beside a copy of the template, and change nothing in either.

import { CfnInclude } from "aws-cdk-lib/cloudformation-include";
import { Asset } from "aws-cdk-lib/aws-s3-assets";
import * as sam from "aws-cdk-lib/aws-sam";
import { Construct } from "constructs";

export interface IdempotencyProps {
  /** The zips of the two functions, of a release or of `cargo lambda build --release --arm64 --output-format zip`. */
  readonly staleZip: string;
  readonly outboxZip: string;
  /** The template. */
  readonly template: string;
  /**
   * Values for the template's parameters: texts and numbers that are known now. Conditions are made of them, and CloudFormation takes no resource's
   * attribute in a condition. Those that are missing stay parameters of the stack, with their defaults.
   */
  readonly parameters?: Record<string, string | number>;
}

export class Idempotency extends Construct {
  private readonly included: CfnInclude;

  constructor(scope: Construct, id: string, props: IdempotencyProps) {
    super(scope, id);
    this.included = new CfnInclude(this, "Template", {
      templateFile: props.template,
      parameters: props.parameters,
      // Of the function `stale`, which names the schedules' role, and of that role, which names the function. SAM makes the schedule a
      // resource of its own, so the stack has no such circle.
      allowCyclicalReferences: true,
    });
    for (const [name, zip] of [["StaleFunction", props.staleZip], ["OutboxFunction", props.outboxZip]]) {
      const function_ = this.included.getResource(name) as sam.CfnFunction;
      const code = new Asset(this, `${name}Code`, { path: zip });
      function_.codeUri = { bucket: code.s3BucketName, key: code.s3ObjectKey };
      // `sam build` would build the program.
      function_.cfnOptions.metadata = undefined;
    }
    // CDK's own type wants a destination for success too, which SAM does not. So it is written as SAM's.
    const stale = this.included.getResource("StaleFunction") as sam.CfnFunction;
    const config = stale.eventInvokeConfig as sam.CfnFunction.EventInvokeConfigProperty;
    const destinations = config.destinationConfig as sam.CfnFunction.EventInvokeDestinationConfigProperty;
    const onFailure = destinations.onFailure as sam.CfnFunction.DestinationProperty;
    stale.eventInvokeConfig = undefined;
    stale.addPropertyOverride("EventInvokeConfig", {
      MaximumRetryAttempts: config.maximumRetryAttempts,
      MaximumEventAgeInSeconds: config.maximumEventAgeInSeconds,
      DestinationConfig: { OnFailure: { Type: onFailure.type, Destination: onFailure.destination } },
    });
  }

  /** An output of the template, such as `TableName`. */
  output(name: string): string {
    return this.included.getOutput(name).value;
  }
}

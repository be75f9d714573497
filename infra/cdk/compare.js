// Compares what `cdk synth` made with the template: nothing of it may be lost, and nothing may be different except what idempotency.ts
// replaces. Usage: cdk synth --quiet && node compare.js

import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { YAMLMap, parse } from "yaml";

const NAMES = ["And", "Equals", "GetAtt", "If", "Join", "Not", "Select", "Split", "Sub", "Ref", "Condition"];

/** An intrinsic function's short form, such as `!Ref`, as its long form. */
const tag = (name) => {
  const long = name === "Ref" || name === "Condition" ? name : `Fn::${name}`;
  const scalar = { tag: `!${name}`, resolve: (text) => ({ [long]: text }) };
  const collection = {
    tag: `!${name}`,
    collection: "seq",
    resolve: (values) => {
      const call = new YAMLMap();
      call.set(long, values);
      return call;
    },
  };
  return [scalar, collection];
};

const read = (path) => readFileSync(path, "utf8");
const template = parse(read("../idempotency.yaml"), { customTags: NAMES.flatMap(tag) });
const made = JSON.parse(read("build/cdk.out/Charges.template.json"));
const replaced = JSON.parse(read("parameters.json"));

/** A value with the parameters that the example replaces. */
const withParameters = (value) => {
  if (Array.isArray(value)) return value.map(withParameters);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.Ref === "string" && value.Ref in replaced) return replaced[value.Ref];
  if (typeof value["Fn::Sub"] === "string") return { "Fn::Sub": substituted(value["Fn::Sub"], {}) };
  if (Array.isArray(value["Fn::Sub"])) {
    const [text, own] = value["Fn::Sub"];
    return { "Fn::Sub": [substituted(text, own), withParameters(own)] };
  }
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, withParameters(member)]));
};
/** A text's own values come before parameters of the same name. */
const substituted = (text, own) => text.replaceAll(/\$\{(\w+)\}/g, (whole, name) => (name in own ? whole : (replaced[name] ?? whole)));

/** What is different, each with its path. */
const differences = (expected, actual, path) => {
  const isObject = (value) => value !== null && typeof value === "object";
  if (!isObject(expected) || !isObject(actual)) {
    return isDeepStrictEqual(expected, actual) ? [] : [`${path}: ${JSON.stringify(expected)} became ${JSON.stringify(actual)}`];
  }
  const names = new Set([...Object.keys(expected), ...Object.keys(actual)]);
  return [...names].flatMap((name) => differences(expected[name], actual[name], `${path}/${name}`));
};

const expected = withParameters(template);
for (const name of Object.keys(replaced)) delete expected.Parameters[name];
const found = [];
for (const name of ["StaleFunction", "OutboxFunction"]) {
  // The release's zip in place of the program that `sam build` builds.
  delete expected.Resources[name].Metadata;
  delete expected.Resources[name].Properties.CodeUri;
  const { Bucket, Key } = made.Resources[name].Properties.CodeUri;
  if (!Bucket || !/\.zip$/.test(Key)) found.push(`${name} has no code`);
  delete made.Resources[name].Properties.CodeUri;
}
// The example's own: the guarded function and its role, and what CDK adds to each stack.
for (const section of ["Parameters", "Rules", "Resources", "Outputs", "Conditions"]) {
  for (const name of Object.keys(made[section])) {
    if (!(name in expected[section]) && /^Charges|^CDKMetadata|BootstrapVersion$/.test(name)) delete made[section][name];
  }
}
found.push(...differences(expected, made, ""));
if (found.length > 0) {
  console.error(found.join("\n"));
  process.exit(1);
}
console.log(`${Object.keys(expected.Resources).length} resources are as in the template`);

"""The batches of this benchmark through Powertools for AWS Lambda (Python): its BatchProcessor, with idempotent_function on DynamoDB.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install aws-lambda-powertools==3.37.0 boto3==1.44.8
    cargo bench --features lambda --bench batches -- --serve    # prints an address, and serves until its input ends
    DYNAMODB_ENDPOINT=http://127.0.0.1:... /tmp/venv/bin/python benches/batches/powertools.py

MESSAGES is the number of messages of a row, SOURCE is queue, stream, table or topic. CPU time is that of this process. Settings are the defaults of the documentation: no payload
validation, no local cache, the SDK's own retries and connections.
"""

import base64
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import boto3
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

SOURCE = os.environ.get("SOURCE", "queue")
EVENT_TYPE, TEMPLATE = {
    "queue": (EventType.SQS, "message.json"),
    "stream": (EventType.KinesisDataStreams, "kinesis.json"),
    "table": (EventType.DynamoDBStreams, "change.json"),
    "topic": (EventType.Kafka, "kafka.json"),
}[SOURCE]
MESSAGE = Path(__file__).with_name(TEMPLATE).read_text().rstrip()
ORDER = Path(__file__).with_name("order.json").read_text().rstrip()
TABLE = "powertools"

SIZES = [1, 10, 100, 1_000]
DUPLICATES = [0, 50, 100]

# As in main.rs and messages.rs.
MESSAGES = int(os.environ.get("MESSAGES", "4000"))
MIN_SAMPLES = 5
WARM_UP = 3
BATCHES = 2

runs = 0
trips = 0


class Context:
    """What Powertools asks of Lambda's context."""

    function_name = "orders"

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 600_000


@dataclass
class Load:
    """The messages of a row of the table."""

    size: int
    duplicates: int

    @property
    def messages(self) -> int:
        return self.size * BATCHES

    def is_duplicate(self, place: int) -> bool:
        return (place + 1) * self.duplicates // 100 > place * self.duplicates // 100

    def fresh(self) -> int:
        return sum(not self.is_duplicate(place) for place in range(self.messages))

    def completed(self) -> str:
        return event(range(self.messages))

    def batches(self, number: int) -> list[str]:
        keys = [
            place if self.is_duplicate(place) else (number + 1) * self.messages + place
            for place in range(self.messages)
        ]
        return [event(keys[start : start + self.size]) for start in range(0, self.messages, self.size)]


def message(key: int) -> str:
    key_text = f"{key:036}"
    data = base64.b64encode(ORDER.replace("KEY", key_text).encode()).decode()
    return MESSAGE.replace("KEY", key_text).replace("DATA", data).replace('"NUMBER"', str(key))


def event(keys) -> str:
    messages = ",".join(message(key) for key in keys)
    if SOURCE == "topic":
        return '{"eventSource":"aws:kafka","records":{"orders-0":[' + messages + "]}}"
    return '{"Records":[' + messages + "]}"


def order_of(record) -> dict:
    """The order in a record of Powertools' data classes."""
    match SOURCE:
        case "queue":
            return json.loads(record.body)
        case "stream":
            return record.kinesis.data_as_json()
        case "table":
            return json.loads(record.dynamodb.new_image["order"])
        case _:
            return record.json_value


def orders_of(event: dict) -> list[dict]:
    """The orders of a batch, without Powertools."""
    match SOURCE:
        case "queue":
            return [json.loads(record["body"]) for record in event["Records"]]
        case "stream":
            return [json.loads(base64.b64decode(record["kinesis"]["data"])) for record in event["Records"]]
        case "table":
            return [json.loads(record["dynamodb"]["NewImage"]["order"]["S"]) for record in event["Records"]]
        case _:
            return [json.loads(base64.b64decode(record["value"])) for record in event["records"]["orders-0"]]


def count(**_) -> None:
    global trips
    trips += 1


def connect():
    client = boto3.client(
        "dynamodb",
        endpoint_url=os.environ["DYNAMODB_ENDPOINT"],
        region_name="eu-central-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
    )
    client.meta.events.register("before-send.dynamodb", count)
    return client


def create_table(client) -> None:
    try:
        client.delete_table(TableName=TABLE)
    except client.exceptions.ResourceNotFoundException:
        pass
    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )


def ship(order: dict) -> dict:
    """The function, which has no effect."""
    global runs
    runs += 1
    if order["amountCents"] == 0 or not order["currency"] or any(not item["sku"] for item in order["items"]):
        raise ValueError("nothing was ordered")
    parcels = sum(item["quantity"] for item in order["items"])
    return {"tracking": f"{order['customerId']}-{order['id']}", "parcels": parcels}


def consumer(client):
    """The consumer, as in the documentation of Powertools."""
    processor = BatchProcessor(event_type=EVENT_TYPE)
    store = DynamoDBPersistenceLayer(table_name=TABLE, boto3_client=client)
    config = IdempotencyConfig(event_key_jmespath="id")
    guarded = idempotent_function(data_keyword_argument="order", persistence_store=store, config=config)(ship)

    def handle(record):
        return guarded(order=order_of(record))

    def handler(event: dict, context: Context):
        config.register_lambda_context(context)
        return process_partial_response(event=event, record_handler=handle, processor=processor, context=context)

    return handler


def bare(event: dict, _: Context):
    for order in orders_of(event):
        ship(order=order)
    return {"batchItemFailures": []}


def deliver(handler, event: str) -> None:
    answer = json.dumps(handler(json.loads(event), Context()))
    assert answer == '{"batchItemFailures": []}', answer


def spent(handler, batches: list[str]) -> tuple[float, float]:
    """The wall and CPU time of these batches, in microseconds."""
    cpu, started = time.process_time(), time.perf_counter()
    for batch in batches:
        deliver(handler, batch)
    return (time.perf_counter() - started) * 1e6, (time.process_time() - cpu) * 1e6


def measure(client, load: Load) -> None:
    create_table(client)
    guarded = consumer(client)
    deliver(guarded, load.completed())
    samples, unguarded, requests = [], [], 0
    for number in range(WARM_UP + max(MESSAGES // load.messages, MIN_SAMPLES)):
        batches = load.batches(number)
        ran, asked = runs, trips
        sample = spent(guarded, batches)
        assert runs - ran == load.fresh(), "a duplicate ran, or a message did not"
        asked = trips - asked
        alone = spent(bare, batches)
        if number >= WARM_UP:
            samples.append(sample)
            unguarded.append(alone)
            requests += asked
    wall = statistics.median(wall for wall, _ in samples) / 1e3 / BATCHES
    cpus = sorted(cpu / load.messages for _, cpu in samples)
    cpu, last = statistics.median(cpus), len(cpus) - 1
    quartiles = f"{cpus[round(last * 0.25)]:.0f} … {cpus[round(last * 0.75)]:.0f}"
    requests /= load.messages * len(samples)
    alone = statistics.median(cpu for _, cpu in unguarded) / load.messages
    print(
        f"{load.size:>8} {load.duplicates:>8} % {wall:>13.2f} {cpu:>8.0f} {quartiles:>15}"
        f" {1e6 / cpu:>14.0f} {requests:>13.2f} {alone:>8.2f}",
        flush=True,
    )


def main() -> None:
    client = connect()
    print(
        f"{'messages':>8} {'duplicates':>10} {'wall ms/batch':>13} {'cpu µs':>8} {'quartiles':>15}"
        f" {'messages/cpu s':>14} {'trips/message':>13} {'bare µs':>8}"
    )
    for size in SIZES:
        for duplicates in DUPLICATES:
            measure(client, Load(size, duplicates))


if __name__ == "__main__":
    main()

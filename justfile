# `just --list` shows these recipes. .ci/run installs the tools below ~/.cache, if the machine does not have them.

export PATH := cache_directory() / "lambda-idempotency/tools/bin" + ":" + cache_directory() / "lambda-idempotency/venv/bin" + ":" + env("PATH")

_default:
    @just --list

# Unit tests: seconds, once they are built
fast *filter:
    cargo test --workspace --lib --bins -- {{ filter }}

# Every test, or those whose name contains the filter
test *filter:
    cargo test --workspace -- {{ filter }}

# The tests of a module of the suite, such as `replays::`
suite *filter:
    cargo test --workspace --test suite -- {{ filter }}

# Make each alarm come and end in the local cloud, or these
drill *alarms:
    cargo run -p local -- drill {{ alarms }}

# Every interleaving of the protocol's steps
model *arguments:
    cargo run -p model -- {{ arguments }}

# Whole functions, with faults at each of their calls
functions *arguments:
    cargo run -p model --config 'profile.dev.package.lambda-idempotency.opt-level=2' -- functions {{ arguments }}

# Behind how many of a flood's items another tenant waits, in each place
flood:
    cargo test -q -p tests --test suite -- flood:: --nocapture | grep '^|'

# Break each rule of the protocol, and see what fails: all, or those of a trap or a file
mutations *names:
    cargo run -p model --bin mutations -- {{ names }}

# Format the code
fmt:
    cargo fmt --all

# Clippy, on everything
lint:
    cargo clippy --locked --workspace --all-targets --all-features -- -D warnings

# The spelling, in all files
spell:
    typos

# The library's documentation, in a browser
docs:
    cargo doc --no-deps --all-features --open

# The site of the documents, below target/site
site:
    .ci/site

# Licences, bans, sources, advisories
deny:
    cargo deny --locked --workspace check

# The local cloud, on http://127.0.0.1:9000
local *arguments:
    cargo run -p local -- {{ arguments }}

# Consumers with a real Kinesis and a real Kafka
pollers *filter:
    KINESIS=required KAFKA=required cargo test --workspace --test kinesis --test kafka -- {{ filter }}

# The operators' command line
cli *arguments:
    cargo run -q -p idempotency-cli -- {{ arguments }}

# What a guarded request costs beside raw calls: all parts, or those whose name contains the filter
cost *filter:
    cargo bench --features lambda --bench cost -- {{ filter }}

# Payments and deliveries in the local cloud
bench:
    cargo bench -p local --bench payments
    cargo bench -p local --bench deliveries

# What would be published, built from its packages
package:
    cargo publish --locked --workspace --dry-run

# Whether this tag can be released, and the text of its release
release-check tag:
    .ci/release-check {{ tag }}

# What a release has besides its crates, into a new folder
release-files folder:
    .ci/release-files {{ folder }}

# The workflows (Go 1.24 or later)
workflows:
    go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# All that must pass before a change lands
ci:
    .ci/run

#!/bin/sh
# The least ACLs that cdcd needs. Run this script where Kafka's own tools are.
# `admin.properties` holds an administrator's credentials, in the names of Kafka's Java clients:
# security.protocol=SASL_SSL, sasl.mechanism=..., sasl.jaas.config=... `cdcd help privileges` shows one.
# On a cluster without log-in it may be empty.
#
#   PREFIX is sink.prefix, SLOT is source.slot.
set -eu
PRINCIPAL=${PRINCIPAL:-User:cdcd}
PREFIX=${PREFIX:-cdcd}
SLOT=${SLOT:-cdcd}
BOOTSTRAP=${BOOTSTRAP:-localhost:9092}
acls() { kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config "${ADMIN:-admin.properties}" "$@"; }

# The topics of the prefix: cdcd makes missing topics, writes them, asks for offsets, and reads the progress.
acls --add --allow-principal "$PRINCIPAL" --operation Create --operation Write --operation Describe --operation DescribeConfigs --operation Read --resource-pattern-type prefixed --topic "$PREFIX."
# The two transactional.ids: exactly once, and fencing.
acls --add --allow-principal "$PRINCIPAL" --operation Write --operation Describe --transactional-id "$PREFIX-$SLOT"
acls --add --allow-principal "$PRINCIPAL" --operation Write --operation Describe --transactional-id "$PREFIX-$SLOT.2"
# Optional: cdcd reads transaction.max.timeout.ms of each broker, `cdcd check` the brokers' other settings.
acls --add --allow-principal "$PRINCIPAL" --operation DescribeConfigs --cluster

# Readers need isolation.level=read_committed and a group of their own.
# acls --add --allow-principal User:reader --operation Read --operation Describe --resource-pattern-type prefixed --topic "$PREFIX."
# acls --add --allow-principal User:reader --operation Read --group reader

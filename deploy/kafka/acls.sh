#!/bin/sh
# The least ACLs that cdcd needs. Edit the three variables, then run this script where Kafka's own tools are.
# `admin.properties` holds an administrator's credentials.
#
#   PREFIX is sink.prefix, SLOT is source.slot.
set -eu
PRINCIPAL=${PRINCIPAL:-User:cdcd}
PREFIX=${PREFIX:-cdcd}
SLOT=${SLOT:-cdcd}
acls() { kafka-acls.sh --bootstrap-server "${BOOTSTRAP:-localhost:9092}" --command-config admin.properties "$@"; }

# The topics of the prefix: cdcd makes missing topics, writes them, asks for their offsets, and reads the progress.
acls --add --allow-principal "$PRINCIPAL" --operation Create --operation Write --operation Describe --operation DescribeConfigs --operation Read --resource-pattern-type prefixed --topic "$PREFIX."
# The two transactional.ids: exactly once, and fencing.
acls --add --allow-principal "$PRINCIPAL" --operation Write --operation Describe --transactional-id "$PREFIX-$SLOT"
acls --add --allow-principal "$PRINCIPAL" --operation Write --operation Describe --transactional-id "$PREFIX-$SLOT.2"
# Optional: cdcd reads transaction.max.timeout.ms, and `cdcd check` reads the brokers' settings.
acls --add --allow-principal "$PRINCIPAL" --operation DescribeConfigs --cluster

# Readers need isolation.level=read_committed and a group of their own.
# acls --add --allow-principal User:reader --operation Read --operation Describe --resource-pattern-type prefixed --topic "$PREFIX."
# acls --add --allow-principal User:reader --operation Read --group reader

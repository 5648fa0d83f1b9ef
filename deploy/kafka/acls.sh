#!/bin/sh
# What the user of cdcd may do on a cluster with ACLs, and nothing else. Edit the three, then run it where Kafka's own
# tools are; `admin.properties` holds an administrator's credentials.
#
#   PREFIX is sink.prefix, SLOT is source.slot.
set -eu
PRINCIPAL=${PRINCIPAL:-User:cdcd}
PREFIX=${PREFIX:-cdcd}
SLOT=${SLOT:-cdcd}
acls() { kafka-acls.sh --bootstrap-server "${BOOTSTRAP:-localhost:9092}" --command-config admin.properties "$@"; }

# The topics of the prefix: made where they are missing, written, asked for their offsets; the progress is read back.
acls --add --allow-principal "$PRINCIPAL" --operation Create --operation Write --operation Describe --operation DescribeConfigs --operation Read --resource-pattern-type prefixed --topic "$PREFIX."
# The two transactional.ids: exactly once, and fencing.
acls --add --allow-principal "$PRINCIPAL" --operation Write --operation Describe --transactional-id "$PREFIX-$SLOT"
acls --add --allow-principal "$PRINCIPAL" --operation Write --operation Describe --transactional-id "$PREFIX-$SLOT.2"
# Optional: lets cdcd see transaction.max.timeout.ms by itself, and `cdcd check` look at the brokers' settings.
acls --add --allow-principal "$PRINCIPAL" --operation DescribeConfigs --cluster

# Readers: isolation.level=read_committed, a group of their own.
# acls --add --allow-principal User:reader --operation Read --operation Describe --resource-pattern-type prefixed --topic "$PREFIX."
# acls --add --allow-principal User:reader --operation Read --group reader

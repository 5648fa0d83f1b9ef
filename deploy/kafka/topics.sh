#!/bin/sh
# cdcd makes these topics by itself. Run this script on clusters where only an administrator may make topics.
# Add a line like the last one for each table. You choose the partitions of a table's topic; the others have one.
set -eu
PREFIX=${PREFIX:-cdcd}
BOOTSTRAP=${BOOTSTRAP:-localhost:9092}
REPLICAS=${REPLICAS:-3}
IN_SYNC=${IN_SYNC:-$((REPLICAS > 1 ? REPLICAS - 1 : 1))}
topic() { kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --create --if-not-exists --replication-factor "$REPLICAS" --config min.insync.replicas="$IN_SYNC" "$@"; }

topic --topic "$PREFIX.progress" --partitions 1 --config cleanup.policy=compact --config min.compaction.lag.ms=604800000
topic --topic "$PREFIX.snapshots" --partitions 1 --config cleanup.policy=compact
topic --topic "$PREFIX.schemas" --partitions 1 --config cleanup.policy=compact
topic --topic "$PREFIX.parked" --partitions 1 --config cleanup.policy=delete --config retention.ms=-1 --config max.message.bytes=1048588
topic --topic "$PREFIX.messages" --partitions 1
# topic --topic "$PREFIX.public.orders" --partitions 4

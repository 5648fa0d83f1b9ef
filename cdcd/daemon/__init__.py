"""`cdcd run`: supervision, a start in its order, and the loop that moves rows from PostgreSQL to Kafka.

In the order of a start::

    process                signals, monitoring and memory around the supervisor
    freed_memory           keeps freed memory at hand
    stop_signals           SIGTERM, SIGINT and SIGHUP
    settings_watch         looks for changed settings, and tries them out
    settings_reload        runs the supervisor under the settings in force, and under new ones
    start_announcement     says where the daemon stands
    service_watch          asks PostgreSQL, Kafka and the registry whether they are there
      slot_monitor         watches the slot from outside the stream
    supervisor             runs one stream after another
    fallbacks              what an error says about the next stream
    unused_slot            drops the slot again if no stream came about
    clients                makes the connections, files, threads and clocks
    stream_startup         knows the order of a start
      start_judgement      refuses a start by the judges of cdcd check
      publication_setup    makes the publication if it is missing
      slot_setup           makes the slot if it is missing
      kafka_takeover       fences the earlier daemon, and reads the progress
      publisher_setup      makes the publisher that goes on from there
      kafka_session        the result of that
      schema_registry      the schema registry of the settings, and what it is asked in advance
      gap_declaration      records that changes are missing
      wiring               builds the parts of the stream
    adoption               cdcd adopt: lets the stream go on at another server
    adoption_proof         where it goes on there, and what the tables need

The loop and its parts::

    pipeline               the loop
      stream_reader        frames -> batches
      request_intake       which requests the daemon takes
      streaming_pause      when transactions in progress may come again
      sink_link            batches to the sink's thread, commits back
      status_updates       when to acknowledge
      idle_advance         when to publish a position without rows
      server_watch         ends the stream if the server shuts down, by server_shutdown
      topic_watch          ends the stream if Kafka loses a topic
      stream_report        status, metrics and log of the stream
      registry_wait        lets the loop answer the server while an event waits for the registry
      snapshot_pump        does what the coordinator decides
    snapshot_coordinator   when to take a snapshot, pause the stream, read rows
      snapshot_requests    which tables want a snapshot
      recopies             which of them because their key or the table itself changed
      snapshot_export      the thread that takes a snapshot
      new_table_scan       looks for tables that want one
      readable_tables      leaves tables out that it may not read
      exported_tables      its tables, described
      snapshot_rows        reads their rows
      repair_requests      which rows are to be repaired
      repair_reading       reads them by their keys
      keyed_rows           the SQL for that
    gap_repairs            which tables are compared after a gap
      table_comparison     the thread that compares one
"""

-- Times (t, t0, t1, tick, mono0, late …) are nanoseconds on the recorder's monotonic clock, from the start
-- of the recording. `tick` is the t of the sample that the row belongs to.
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE incarnation(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, node TEXT NOT NULL, os_pid INTEGER,
  boot TEXT NOT NULL, mono0 INTEGER NOT NULL, wall0 INTEGER NOT NULL);
CREATE TABLE fact(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, inc INTEGER NOT NULL, key TEXT NOT NULL,
  value TEXT NOT NULL);
CREATE TABLE series(id INTEGER PRIMARY KEY, grp TEXT NOT NULL, entity TEXT NOT NULL, name TEXT NOT NULL,
  unit TEXT NOT NULL, kind TEXT NOT NULL);
CREATE TABLE tick(t INTEGER PRIMARY KEY, inc INTEGER NOT NULL, vm_t0 INTEGER, vm_t1 INTEGER, host_t0 INTEGER,
  host_t1 INTEGER, late INTEGER NOT NULL);
-- Readings, see "Chunks": five minutes of a group are a row of `chunk`; after these, each second is a row of `hot`.
CREATE TABLE chunk(id INTEGER PRIMARY KEY, grp TEXT NOT NULL, t0 INTEGER NOT NULL, t1 INTEGER NOT NULL,
  codec INTEGER NOT NULL, crc INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE TABLE hot(id INTEGER PRIMARY KEY, grp TEXT NOT NULL, t INTEGER NOT NULL, codec INTEGER NOT NULL,
  crc INTEGER NOT NULL, blob BLOB NOT NULL);
-- Strings that occur repeatedly; columns named …_text hold ids of this table.
CREATE TABLE text(id INTEGER PRIMARY KEY, string TEXT NOT NULL UNIQUE);
CREATE TABLE process(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, pid TEXT NOT NULL,
  ranks_text INTEGER NOT NULL, name_text INTEGER, label_text INTEGER, initial_call_text INTEGER,
  current_function_text INTEGER, application_text INTEGER, parent TEXT, status_text INTEGER,
  reductions INTEGER NOT NULL, queue INTEGER NOT NULL, message_queue_data_text INTEGER,
  memory_bytes INTEGER NOT NULL, total_heap_words INTEGER, binary_bytes INTEGER, minor_gcs INTEGER,
  fullsweep_after INTEGER, min_heap_words INTEGER, total_bytes INTEGER, fragment_bytes INTEGER, stack_text INTEGER, priority_text INTEGER);
CREATE TABLE ets(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, table_id TEXT NOT NULL,
  name_text INTEGER NOT NULL, owner TEXT NOT NULL, owner_name_text INTEGER, objects INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL, kind_text INTEGER NOT NULL, protection_text INTEGER NOT NULL,
  options_text INTEGER NOT NULL);
CREATE TABLE port(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, port_id TEXT NOT NULL,
  name_text INTEGER NOT NULL, connected TEXT, input_bytes INTEGER NOT NULL, output_bytes INTEGER NOT NULL,
  queue_bytes INTEGER NOT NULL, os_pid INTEGER);
CREATE TABLE spawn(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, what_text INTEGER NOT NULL,
  kind_text INTEGER NOT NULL, maker_text INTEGER, count INTEGER NOT NULL, of INTEGER NOT NULL, bytes INTEGER);
-- Call stacks of waiting processes. Files of older versions do not have this table and the next ones.
CREATE TABLE stand(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, pid TEXT,
  status_text INTEGER NOT NULL, stack_text INTEGER NOT NULL, count INTEGER NOT NULL, queued INTEGER NOT NULL,
  of INTEGER NOT NULL, waits_for TEXT NOT NULL, kind_text INTEGER);
-- Messages whose size was estimated from the heaps of idle receivers.
CREATE TABLE message(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, pid TEXT,
  messages INTEGER NOT NULL, bytes INTEGER NOT NULL, off_heap INTEGER NOT NULL, us INTEGER NOT NULL,
  active INTEGER NOT NULL, sampled INTEGER NOT NULL);
-- Call stacks of the busiest processes while running or waiting within a call, and of random processes at work.
CREATE TABLE ran(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, pid TEXT NOT NULL,
  stack_text INTEGER NOT NULL, looks INTEGER NOT NULL, waits INTEGER, kind_text INTEGER, collects INTEGER);
-- Exits of monitored processes.
CREATE TABLE exit(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, parent TEXT,
  parent_name_text INTEGER, parent_call_text INTEGER, name_text INTEGER, call_text INTEGER, reason_text INTEGER,
  stack TEXT NOT NULL, callee_text INTEGER, count INTEGER NOT NULL, heap_limit_words INTEGER NOT NULL);
-- Data that are read on request only.
CREATE TABLE carrier(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL,
  allocator_text INTEGER NOT NULL, skipped_text INTEGER, in_pool INTEGER NOT NULL, single INTEGER NOT NULL,
  size_log2 INTEGER, used_tenths INTEGER, carriers INTEGER NOT NULL, bytes INTEGER NOT NULL,
  unscanned_bytes INTEGER NOT NULL, blocks TEXT NOT NULL, free TEXT NOT NULL);
CREATE TABLE allocation(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL,
  origin_text INTEGER NOT NULL, kind_text INTEGER NOT NULL, skipped_text INTEGER, blocks INTEGER NOT NULL,
  bytes INTEGER NOT NULL, sizes TEXT NOT NULL);
CREATE TABLE code(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, application_text INTEGER,
  modules INTEGER NOT NULL, bytes INTEGER NOT NULL, old_bytes INTEGER NOT NULL);
CREATE TABLE holder(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, pid TEXT NOT NULL,
  name_text INTEGER, label_text INTEGER, initial_call_text INTEGER, skipped_text INTEGER,
  heap_bytes INTEGER NOT NULL, binary_vheap_bytes INTEGER NOT NULL, refs INTEGER NOT NULL,
  binaries INTEGER NOT NULL, bytes INTEGER NOT NULL, alone INTEGER NOT NULL, alone_bytes INTEGER NOT NULL);
CREATE TABLE collection(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL,
  how_text INTEGER NOT NULL, processes INTEGER NOT NULL, chosen INTEGER NOT NULL, largest INTEGER NOT NULL,
  rest_bytes INTEGER NOT NULL, collected INTEGER NOT NULL, gone INTEGER NOT NULL, no_answer INTEGER NOT NULL,
  large INTEGER NOT NULL, stopped_text INTEGER NOT NULL, heap_before INTEGER NOT NULL,
  heap_after INTEGER NOT NULL, binary_before INTEGER NOT NULL, binary_after INTEGER NOT NULL,
  chance INTEGER NOT NULL, chance_heap_kib INTEGER NOT NULL, chance_heap_kib_squares INTEGER NOT NULL,
  chance_binary_kib INTEGER NOT NULL, chance_binary_kib_squares INTEGER NOT NULL,
  memory_processes_before INTEGER, memory_processes_after INTEGER, memory_binary_before INTEGER,
  memory_binary_after INTEGER, took INTEGER NOT NULL, longest INTEGER NOT NULL, late INTEGER NOT NULL,
  queue INTEGER NOT NULL);
CREATE TABLE collected(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, pid TEXT NOT NULL,
  name_text INTEGER, label_text INTEGER, initial_call_text INTEGER, heap_before INTEGER NOT NULL,
  heap_after INTEGER NOT NULL, binary_before INTEGER NOT NULL, binary_after INTEGER NOT NULL,
  took INTEGER NOT NULL);
CREATE TABLE lock_session(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL,
  length INTEGER NOT NULL, categories TEXT NOT NULL, locks INTEGER NOT NULL, told INTEGER NOT NULL,
  reductions INTEGER, processes INTEGER, cost_bytes INTEGER, remark TEXT NOT NULL);
CREATE TABLE lock(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, class_text INTEGER NOT NULL,
  kind_text INTEGER NOT NULL, lock_id_text INTEGER, entity_text INTEGER, locks INTEGER NOT NULL,
  file_text INTEGER, line INTEGER, tries INTEGER NOT NULL, collisions INTEGER NOT NULL, waited INTEGER NOT NULL,
  waits INTEGER NOT NULL, histogram TEXT NOT NULL);
CREATE TABLE lock_wait(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, length INTEGER NOT NULL,
  thread_text INTEGER NOT NULL, how_text INTEGER NOT NULL, stack TEXT NOT NULL, seen INTEGER NOT NULL,
  waited INTEGER NOT NULL);
CREATE TABLE snapshot(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, kind TEXT NOT NULL,
  codec INTEGER NOT NULL, crc INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE TABLE event(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t INTEGER NOT NULL, kind TEXT NOT NULL,
  subject TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE gap(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, t0 INTEGER NOT NULL, t1 INTEGER NOT NULL,
  source TEXT NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX gap_source ON gap(source, t0);

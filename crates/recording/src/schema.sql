-- Times (t, t0, t1, tick, mono0, late …) are nanoseconds on the recorder's monotonic clock, from the start
-- of the recording. `tick` is the t of the sample that the row belongs to.
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE incarnation(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, node TEXT NOT NULL, os_pid INTEGER,
  boot TEXT NOT NULL, mono0 INTEGER NOT NULL, wall0 INTEGER NOT NULL);
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

-- A study: its question, and the trials that have ended.
CREATE TABLE meta(
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE trial(
    -- From 0, in the order in which they ended.
    number INTEGER PRIMARY KEY,
    -- JSON, as beamtune study export prints it.
    content TEXT NOT NULL,
    -- The recording of the trial's window: the bytes of a recording file.
    recording BLOB
);

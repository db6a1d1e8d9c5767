-- Whose agents these are copies of: one row at most. Agents of another place with the same names are others.
CREATE TABLE place (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    name TEXT NOT NULL                             -- prefix.namespace
);

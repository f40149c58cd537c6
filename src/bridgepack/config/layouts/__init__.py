"""Public layouts of data sets, and how they are told from rows."""

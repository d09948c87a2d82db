"""Where rows live and how some are drawn.

base          the two verbs every source has: tally and gather
open          whatever holds a table becomes a source
memory        frames and arrays          ┐
folder        column files, mapped       ┴ local: the verbs, written once for both
draws, toss   which rows; from what they say to outcomes, tossed and flipped
columns       a column at rest; kinds: which types there are; mapped: files and the operating system
ingest        a file becomes a folder: scan reads it, append writes the columns, manifest vouches for them
fingerprint   one hash for the content, wherever it lies
"""

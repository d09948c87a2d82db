"""Where rows live and how some are drawn.

source         what a row source is: tally and sample, the only access to rows; which of them a question gets
open           turns anything that holds a table into a row source
memory         frames and arrays          ┐
disk           column files, mapped       ┴ local: the verbs, written once for both
decks          draws made beforehand: cards, each for one question; engines: Spark and Ray deal where the rows are
draws          which rows are drawn; turning their values into outcomes, tossed and randomized
units          rows that belong together: how they are grouped, and which row represents a unit
columns        a column at rest: types and layouts
buffers        memory that is used again
scans          tables read in batches of so many rows and bytes: files, streams, lakes, databases
fingerprint    one hash for the content, wherever it is stored
"""

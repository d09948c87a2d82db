"""Where rows live and how some are drawn.

source         what a row source is: tally and sample, the only access to rows
open           turns anything that holds a table into a row source
memory         frames and arrays          ┐
disk           column files, mapped       ┴ local: the verbs, written once for both
decks          draws made beforehand: cards, each for one question; engines: Spark and Ray deal where the rows are
draws          which rows are drawn; turning their values into outcomes, tossed and randomized
drawers        where the rows of a question come from: a table, a deck, rows that only check guesses
units          rows that belong together: how they are grouped, and which row represents a unit
columns        a column at rest: types and layouts
batches        tables in pieces of so many rows and so many bytes
scans          tables read batch by batch: files, streams, lakes, databases
fingerprint    one hash for the content, wherever it is stored
"""

"""Where rows live and how some are drawn.

source              what a row source is: tally and sample, and nothing else that reaches rows
open                whatever holds a table becomes a source
memory              frames and arrays          ┐
folder              column files, mapped       ┴ local: the verbs, written once for both
deck                draws made beforehand: cards, each for one question
draws, randomize    which rows; from what they say to outcomes, tossed and randomized
units               rows that belong together: how they are put together, and which of them speak for a unit
columns             a column at rest: types and layouts
scans               tables read batch by batch: files, streams, lakes, databases
ingest              a table becomes a folder: scanned, written by column_writer
deal                a table becomes a deck: cards, sorting; engines deal where the rows are
kept                rows of a deck that are on no card: they check guesses
header              what a file's own header says about missing values
fingerprint         one hash for the content, wherever it lies
blocks              hashes of column files, and the check that they still hold what was written
"""

"""Where rows live and how some are drawn.

source              what a row source is: tally and sample, the only access to rows
open                turns anything that holds a table into a row source
memory              frames and arrays          ┐
folder              column files, mapped       ┴ local: the verbs, written once for both
deck                draws made beforehand: cards, each for one question
draws               which rows are drawn; turning their values into outcomes, tossed and randomized
units               rows that belong together: how they are grouped, and which row represents a unit
columns             a column at rest: types and layouts
scans               tables read batch by batch: files, streams, lakes, databases
ingest              turns a table into a folder: scanned, written by column_writer
deal                turns a table into a deck: cards, sorting; engines deal where the rows are
kept                rows of a deck that are on no card: they check guesses
fingerprint         one hash for the content, wherever it is stored
array_files         column files in hashed blocks, and the check that the files still match them
"""

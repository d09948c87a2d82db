"""Tables at rest: a folder with one array file per column.

folder           the folder as a row source: mapped into memory, cheap to open
ingest           turns a table into a folder, once; partial: a folder under construction
asked            rows that have answered questions: nothing else takes the place of their folder
column_writer    columns that grow batch by batch
array_files      one array file in hashed blocks
packs            numbers that fits need of every row, stored side by side
posix            what all this needs from the operating system
"""

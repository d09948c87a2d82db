"""What users call: sessions, plans, rows held back.

session      `Session`: a method for every kind of question, lists of questions, SQL, prices beforehand, the history
answering    the story of a question: check, price, find, reserve, draw, certify, commit
standing     which plan stands: the one that the ledger records, or that begins it
beside       what is stored beside the data: declarations of columns, the ledger, its witness, another part
parts        `holdfast.hold_back`: rows to look at, and rows held back to check what was found
planning     `holdfast.plan`: what a number of rows, or the rows of a file, can promise
"""

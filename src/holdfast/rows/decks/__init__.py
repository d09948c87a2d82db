"""Decks: all draws of a table made beforehand, in one pass, and read in sequence.

deal       `holdfast.deal`, on this machine or by an engine; dealing: one deal from a table to decks, resumed if need be
cards      which rows are dealt, keyed so that a retried task deals the same; the hand of one question
supply     what a deal is made from: rows in chunks, or whole units; which rows are on no card and check guesses
placing    cards written where their range will be; sorting: ranges put in order, in bounded memory
threads    work ahead, behind and at the same time, none of which outlives its caller
deck       the deck as a row source: each card is used once; used: how far it is used
dealt      what was dealt from which table, noted beside both
"""

import holdfast.rows.disk  # noqa: F401  # refuses Windows, in a sentence

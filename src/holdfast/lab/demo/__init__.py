"""The first five minutes: a population that is known by formula, a tour, and a discovery that is none.

population.py   rows whose every mean is known
discovery.py    the analyst who digs in noise: what naive answers make of it
story.py        the tour and the 10,000 questions, through a session like anybody's
picture.py      claimed against real, as the questions go by
"""

"""`holdfast deck`."""

from typing import Annotated

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Json
from holdfast.cli.output import say, show_json

NO_ARGS_IS_HELP = True


def command(
    deck: Annotated[str, Argument(metavar="DECK", help="A deck, for example events.deck.")],
    ledger: Annotated[str | None, Flag(help="A path or a database URL, if it is not beside the deck.")] = None,
    json: Json = False,
) -> None:
    """Show how many cards of a deck are left, and for how many answers.

    Spends nothing. The number of answers is known once the ledger has begun: its plan says how many rows an answer
    reads.

    \b
    holdfast deck events.deck
    """
    from pathlib import Path

    from holdfast.errors import InvalidArgument
    from holdfast.ledger import Cost, exists
    from holdfast.rows.decks.cards import cards_taken
    from holdfast.rows.decks.deck import Deck, is_deck
    from holdfast.session import Session
    from holdfast.session.beside import ledger_beside

    if not is_deck(Path(deck)):
        raise InvalidArgument(f"deck must be a deck that `holdfast deal` made; got {deck!r}.", name="deck")
    cards = Deck(Path(deck))
    place = ledger or ledger_beside(cards)
    answers = None
    if exists(place, cards.name):
        with Session(cards, ledger=place) as session:
            left = max(0, cards.cards.stop - cards_taken(session.plan, session.ledger.taken))
            answers = left // cards_taken(session.plan, Cost(session.plan.terms.charge_per_answer, 1))
    else:
        left = cards.left
    cards.close()
    if json:
        counted = {"rows": len(cards), "kept_for_checks": cards.kept_count, "cards": cards.cards.stop, "left": left}
        show_json(name=cards.name, **counted, answers_left=answers)
        return
    say(
        f"{cards.name}: {left:,} of {cards.cards.stop:,} cards left, from {cards.schema.units_of(len(cards))}",
        bold=True,
    )
    if cards.kept_count:
        say(f"{cards.kept_count:,} of them are on no card and check guesses")
    if answers is not None:
        say(f"enough for {answers:,} more answers as planned")

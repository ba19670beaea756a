"""Words and sentences of the built-in word problems. Own sentences; nothing is quoted."""

from __future__ import annotations

from dataclasses import dataclass

NAMES = (
    "Ada", "Amir", "Anna", "Ben", "Carla", "Chen", "Clara", "Dana", "David", "Elena", "Emil",
    "Farah", "Felix", "Grace", "Hanna", "Hugo", "Ines", "Ivan", "Jonas", "Julia", "Kai", "Karim",
    "Laura", "Leo", "Lina", "Marco", "Maya", "Milan", "Nadia", "Noah", "Nora", "Omar", "Paula",
    "Rosa", "Ruben", "Sara", "Simon", "Sofia", "Tariq", "Vera", "Yuki", "Zoe",
)  # fmt: skip

ITEMS = (
    "apples", "badges", "baskets", "beads", "books", "bottles", "bricks", "buttons", "candles",
    "cards", "coins", "cookies", "cups", "eggs", "flowers", "jars", "keys", "lamps", "lemons",
    "marbles", "melons", "mugs", "muffins", "notebooks", "oranges", "peaches", "pencils",
    "plates", "postcards", "ribbons", "seeds", "shells", "spoons", "stamps", "stickers",
    "tickets", "tiles", "towels", "toys", "tulips",
)  # fmt: skip

PLACES = (
    "the bakery", "the corner shop", "the farm", "the garden", "the harbour", "the hospital",
    "the kitchen", "the library", "the market", "the museum", "the office", "the old mill",
    "the park", "the post office", "the school", "the station", "the studio", "the theatre",
    "the town hall", "the village fair", "the warehouse", "the workshop",
)  # fmt: skip

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

SCENES = (
    "It is a quiet {day} at {place}.",
    "On {day} the line in front of {place} is long.",
    "Every {day} {name} helps at {place} with {friend}.",
    "{name} and {friend} meet at {place} early on {day}.",
    "Rain keeps most people away from {place} on {day}.",
    "There is a sale at {place} this {day}.",
    "{friend} has asked {name} to come to {place} on {day}.",
    "The doors of {place} open late on {day}.",
    "A bus stops near {place} on {day}, and {name} gets off.",
    "Nobody at {place} expected so much work on {day}.",
    "{name} keeps a small list of everything that is needed at {place}.",
    "After a long week, {name} walks to {place} on {day}.",
)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of an answer: `{sum}` in the sentence is `left operator right` and its value."""

    left: str
    operator: str
    right: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with numbers to draw (inclusive ranges) and the steps of its answer.

    The value of the steps is known to later steps as `r1`, `r2`, ...
    """

    question: str
    numbers: dict[str, tuple[int, int]]
    steps: tuple[Step, ...]


PROBLEMS = (
    Problem(
        "{name} buys {a} boxes of {item} with {b} {item} in each box and gives {c} of them to"
        " {friend}. How many {item} does {name} have left?",
        {"a": (3, 24), "b": (6, 48), "c": (2, 17)},
        (
            Step("a", "*", "b", "In all boxes together there are {sum} {item}."),
            Step("r1", "-", "c", "After the gift {name} has {sum} {item} left."),
        ),
    ),
    Problem(
        "{name} sells {a} {item} in the morning and {b} more {item} in the afternoon than in the"
        " morning. Each of them costs ${c}. How much money does {name} take in one day?",
        {"a": (5, 60), "b": (2, 30), "c": (2, 12)},
        (
            Step("a", "+", "b", "In the afternoon {name} sells {sum} {item}."),
            Step("a", "+", "r1", "That makes {sum} {item} in one day."),
            Step("r2", "*", "c", "The money for them comes to {sum} dollars."),
        ),
    ),
    Problem(
        "A shelf holds {a} rows of {item} and every row has {b} of them. {friend} brings {c} more"
        " and {name} sorts them in. How many {item} are on the shelf now?",
        {"a": (4, 15), "b": (7, 35), "c": (3, 90)},
        (
            Step("a", "*", "b", "Before {friend} came, the shelf held {sum} {item}."),
            Step("r1", "+", "c", "With the new ones there are {sum} {item}."),
        ),
    ),
    Problem(
        "{name} rides {a} kilometers to work and the same way back, {b} days a week. How far does"
        " {name} ride in {c} weeks?",
        {"a": (3, 28), "b": (2, 6), "c": (3, 12)},
        (
            Step("a", "+", "a", "One day of riding is {sum} kilometers."),
            Step("r1", "*", "b", "One week is {sum} kilometers."),
            Step("r2", "*", "c", "All weeks together are {sum} kilometers."),
        ),
    ),
    Problem(
        "A ticket costs ${a} for a grown person and ${b} for a child. {name} pays for {c} grown"
        " people and {d} children. What does {name} pay?",
        {"a": (11, 30), "b": (3, 10), "c": (2, 9), "d": (2, 14)},
        (
            Step("a", "*", "c", "The grown people cost {sum} dollars."),
            Step("b", "*", "d", "The children cost {sum} dollars."),
            Step("r1", "+", "r2", "Both together cost {sum} dollars."),
        ),
    ),
    Problem(
        "{friend} saves ${a} a week and {name} saves ${b} a week. After {c} weeks they buy a gift"
        " for ${d}. How much do they still have?",
        {"a": (12, 40), "b": (9, 35), "c": (4, 16), "d": (15, 80)},
        (
            Step("a", "+", "b", "Each week they save {sum} dollars."),
            Step("r1", "*", "c", "In that time they save {sum} dollars."),
            Step("r2", "-", "d", "After the gift they have {sum} dollars."),
        ),
    ),
    Problem(
        "A machine makes {a} {item} an hour. It runs {b} hours, then {name} repairs it and it makes"
        " {c} {item} an hour for {d} hours. How many {item} does it make?",
        {"a": (20, 75), "b": (2, 9), "c": (76, 140), "d": (2, 8)},
        (
            Step("a", "*", "b", "Before the repair it makes {sum} {item}."),
            Step("c", "*", "d", "After the repair it makes {sum} {item}."),
            Step("r1", "+", "r2", "Altogether it makes {sum} {item}."),
        ),
    ),
    Problem(
        "{name} reads {a} pages on the first evening and {b} pages on each of the next {c}"
        " evenings. The book has {d} pages. How many pages are left?",
        {"a": (10, 40), "b": (12, 30), "c": (3, 9), "d": (320, 600)},
        (
            Step("b", "*", "c", "On the later evenings {name} reads {sum} pages."),
            Step("a", "+", "r1", "So far {name} has read {sum} pages."),
            Step("d", "-", "r2", "There are {sum} pages left."),
        ),
    ),
    Problem(
        "Each of the {a} tables needs {b} plates and {c} cups. How many plates and cups does {name}"
        " carry to set all tables?",
        {"a": (5, 26), "b": (4, 9), "c": (3, 8)},
        (
            Step("b", "+", "c", "One table needs {sum} pieces."),
            Step("a", "*", "r1", "All tables need {sum} pieces."),
        ),
    ),
    Problem(
        "{name} plants {a} rows of tulips. Each row has {b} tulips, but {c} of all tulips do not"
        " grow and {friend} picks {d} of the others. How many tulips stay in the ground?",
        {"a": (6, 20), "b": (8, 30), "c": (3, 12), "d": (5, 30)},
        (
            Step("a", "*", "b", "{name} plants {sum} tulips."),
            Step("r1", "-", "c", "Of these, {sum} tulips grow."),
            Step("r2", "-", "d", "After that {sum} tulips stay."),
        ),
    ),
    Problem(
        "A tank holds {a} liters of water. A pump takes out {b} liters every minute for {c}"
        " minutes, while {name} pours in {d} liters. How many liters are in the tank then?",
        {"a": (400, 900), "b": (4, 20), "c": (5, 18), "d": (10, 99)},
        (
            Step("b", "*", "c", "The pump takes out {sum} liters."),
            Step("a", "-", "r1", "Without the pouring, {sum} liters would be in the tank."),
            Step("r2", "+", "d", "With it there are {sum} liters."),
        ),
    ),
    Problem(
        "In one team there are {a} players, and {b} teams come to play. Every player gets {c}"
        " {item}. How many {item} must {name} bring?",
        {"a": (5, 15), "b": (3, 12), "c": (2, 6)},
        (
            Step("a", "*", "b", "There are {sum} players."),
            Step("r1", "*", "c", "They get {sum} {item}."),
        ),
    ),
    Problem(
        "{name} works {a} hours at ${b} an hour and {c} hours at ${d} an hour. How much does {name}"
        " earn?",
        {"a": (3, 30), "b": (11, 19), "c": (2, 14), "d": (20, 32)},
        (
            Step("a", "*", "b", "The first hours pay {sum} dollars."),
            Step("c", "*", "d", "The other hours pay {sum} dollars."),
            Step("r1", "+", "r2", "{name} earns {sum} dollars."),
        ),
    ),
    Problem(
        "{friend} has {a} {item}. {name} has {b} times as many, and both put theirs into one bag"
        " that already holds {c}. How many {item} are in the bag?",
        {"a": (4, 45), "b": (2, 7), "c": (5, 120)},
        (
            Step("a", "*", "b", "{name} has {sum} {item}."),
            Step("a", "+", "r1", "Together they have {sum} {item}."),
            Step("r2", "+", "c", "The bag holds {sum} {item}."),
        ),
    ),
)

#: Sentences that add a number which no step needs, so that rows do not all look alike.
ASIDES = (
    "The walk there took {x} minutes.",
    "{friend} is {x} years old.",
    "A sign on the wall says that number {x} is next.",
    "Last year the price was {x} cents lower.",
    "The bus number is {x}.",
    "It is {x} degrees outside.",
    "There are {x} chairs in the room.",
    "Somebody counted {x} birds on the roof.",
)

"""Every finding of the package, by its code: ``from caliope.checks import B104``."""

from typing import Final

from caliope.checks._registry import (
    Check,
    Concern,
    Finding,
    Level,
    Verdict,
    every,
    explain,
    find,
    plural,
    verdict,
)

A101: Final = find("A101")
A102: Final = find("A102")
A103: Final = find("A103")
A104: Final = find("A104")
A105: Final = find("A105")
A106: Final = find("A106")
A107: Final = find("A107")
A108: Final = find("A108")
A109: Final = find("A109")
A110: Final = find("A110")
A111: Final = find("A111")
A112: Final = find("A112")
A113: Final = find("A113")
A114: Final = find("A114")
B101: Final = find("B101")
B102: Final = find("B102")
B103: Final = find("B103")
B104: Final = find("B104")
B105: Final = find("B105")
B106: Final = find("B106")
B107: Final = find("B107")
B108: Final = find("B108")
B109: Final = find("B109")
B110: Final = find("B110")
C101: Final = find("C101")
C102: Final = find("C102")
C103: Final = find("C103")
C104: Final = find("C104")
C105: Final = find("C105")
C106: Final = find("C106")
C107: Final = find("C107")
C108: Final = find("C108")
C109: Final = find("C109")
C110: Final = find("C110")
C111: Final = find("C111")
C112: Final = find("C112")
C113: Final = find("C113")
C114: Final = find("C114")
C115: Final = find("C115")
D100: Final = find("D100")
D101: Final = find("D101")
D102: Final = find("D102")
D103: Final = find("D103")
D104: Final = find("D104")
D105: Final = find("D105")
D106: Final = find("D106")
D107: Final = find("D107")
D108: Final = find("D108")
D109: Final = find("D109")
D110: Final = find("D110")
D111: Final = find("D111")
D112: Final = find("D112")
D113: Final = find("D113")
D114: Final = find("D114")
D115: Final = find("D115")
D116: Final = find("D116")
D117: Final = find("D117")
D118: Final = find("D118")
D119: Final = find("D119")
K101: Final = find("K101")
K102: Final = find("K102")
K103: Final = find("K103")
K104: Final = find("K104")
K105: Final = find("K105")
K106: Final = find("K106")
K107: Final = find("K107")
K108: Final = find("K108")
K109: Final = find("K109")
K110: Final = find("K110")
L101: Final = find("L101")
L102: Final = find("L102")
L103: Final = find("L103")
L104: Final = find("L104")
L105: Final = find("L105")
L106: Final = find("L106")
L107: Final = find("L107")
L108: Final = find("L108")
L109: Final = find("L109")
L110: Final = find("L110")
L111: Final = find("L111")
L112: Final = find("L112")
P101: Final = find("P101")
P103: Final = find("P103")
Q101: Final = find("Q101")
Q102: Final = find("Q102")
Q103: Final = find("Q103")
Q104: Final = find("Q104")
Q105: Final = find("Q105")
Q106: Final = find("Q106")
S101: Final = find("S101")
S102: Final = find("S102")
S103: Final = find("S103")
U101: Final = find("U101")
U102: Final = find("U102")
U103: Final = find("U103")
U104: Final = find("U104")
U105: Final = find("U105")
U106: Final = find("U106")
U107: Final = find("U107")
V101: Final = find("V101")
V102: Final = find("V102")
V103: Final = find("V103")
V104: Final = find("V104")
V105: Final = find("V105")
V106: Final = find("V106")
W101: Final = find("W101")
W102: Final = find("W102")
W103: Final = find("W103")
W104: Final = find("W104")
W105: Final = find("W105")
W106: Final = find("W106")
W107: Final = find("W107")
W108: Final = find("W108")

__all__ = [
    "Check",
    "Concern",
    "Finding",
    "Level",
    "Verdict",
    "every",
    "explain",
    "find",
    "plural",
    "verdict",
]

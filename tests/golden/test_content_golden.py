"""What the built-in parts give, byte for byte: fingerprints, and one prompt by its hash.

Another value here means other data sets from the same configuration: raise RULE_VERSION and say so
in the changelog. A failing assertion shows the new value.
"""

from __future__ import annotations

from hashlib import sha256

from content_samples import LABELS, builtin_pool, builtin_tokenizer, columns_of, text_frame
from prefixbench.content.compose import Composer
from prefixbench.content.corpus import load_corpus


def test_the_builtin_tokenizer_is_the_same_everywhere() -> None:
    assert builtin_tokenizer().fingerprint == (
        "19c3a1f6509150b7e181880ea7093efeb622220b20b1d4255ee07aeff5ef326d"
    )


def test_the_builtin_corpus_is_the_same_everywhere() -> None:
    assert load_corpus("builtin", seed=0).sha256 == (
        "4989f162b34259930dccdf762065bd01c17b49b22875caffdaf1a0b65077feef"
    )


def test_prompts_are_the_same_everywhere() -> None:
    frame = text_frame()
    rows = [(number % 3, 100 + 37 * number, [0, 32, 77][number % 3]) for number in range(40)]
    composer = Composer(builtin_pool(), frame, columns_of(rows, frame), LABELS)
    digest = sha256()
    for number in range(len(rows)):
        digest.update(composer.prompt_json(number) + b"\n")
    assert digest.hexdigest() == (
        "8a35432173680424f4e744fa7f1674752626048015a1fd38d33d63579b61309b"
    )


def test_one_prompt_reads_like_this() -> None:
    frame = text_frame()
    composer = Composer(builtin_pool(), frame, columns_of([(0, 64, 24)], frame), LABELS)
    assert composer.prompt_json(0).decode() == (
        "The lace theirs year then\\n\\nEvery Thursday Emil helps at the school with Vera. A ticket"
        " costs $28 for qeho ziguhe list stops saves doors beads buy and plates cups needs fair"
        " pours pays bakery then\\n\\nAfter a long week, Zoe walks to the park on Thursday. It is"
        " 56 degrees outside. A machine"
    )

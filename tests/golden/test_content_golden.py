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
        "730503b2be71d00b45ad192cc585c06a71c8297a9ae250d64de4a28ecb2d869c"
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
        "289c153ce845acd167262812c45dae1c233c82f8a97da819dd6a23deb1a9793b"
    )


def test_one_prompt_reads_like_this() -> None:
    frame = text_frame()
    composer = Composer(builtin_pool(), frame, columns_of([(0, 64, 24)], frame), LABELS)
    assert composer.prompt_json(0).decode() == (
        "The daxe beno ride then\\n\\nInes keeps a small list of everything that is needed at the"
        " station. In one team rokure podivo boke take bewe boki cemu come together baze ciga"
        " morning buva bute cewu bose then\\n\\nA bus stops near the market on Wednesday, and Ben"
        " gets off. Ben plants 20 rows of tulips."
    )

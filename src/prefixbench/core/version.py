"""Versions that go into every artefact."""

__version__ = "0.1.0"

#: Layout of a data set on disk; raised when an older reader would misread a newer one.
FORMAT_VERSION = 1

#: Rules by which plans and texts are derived from a configuration. Raised whenever the
#: same configuration would give other bytes.
RULE_VERSION = 2

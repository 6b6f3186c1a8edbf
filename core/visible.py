"""Control characters in untrusted text, written so that they are visible and do nothing."""

import json
import re

# Commands to a terminal, marks that change the direction of text, further line ends, halves of
# surrogate pairs, and noncharacters.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff"
    "\ud800-\udfff]"
)


def visible(text: str, keep: str = "\n\t") -> str:
    r"""A text with control characters, except those in `keep`, as JSON escapes: ESC as `\u001b`."""
    return _CONTROL.sub(lambda m: m[0] if m[0] in keep else json.dumps(m[0])[1:-1], text)

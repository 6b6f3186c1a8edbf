"""Names that a model may have, and that a page might take for more."""

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "https://evil.example/x",
    "![i](http://evil.example/i.png) [l](x) www.evil.example",
    ":material/home: :smile: :red[x] a:blue :streamlit:",
    "a -> b -- c <= d",
    "**b** _i_ `c` ~~s~~ $x^2$ a\\b &lt;b&gt;",
    "- item",
    "1. item",
    "# h",
]

"""The page, one file per tab. Panels ask a `RequestCache` and draw the answers, without a TVM."""

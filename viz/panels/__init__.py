"""The page, one file a tab. Panels ask a `RequestCache` and draw the answers, without a TVM."""

//! The HTTP API, the metrics and the built-in page.

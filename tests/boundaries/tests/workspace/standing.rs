//! Cycles of modules that stand. The list may only become shorter: an entry that is no cycle any more fails the test.

/// Crate, and modules of it that use each other.
pub(crate) const STANDING: &[(&str, &[&str])] = &[
    ("collector", &["crate::collector", "crate::ledger", "crate::managed", "crate::probes", "crate::watcher"]),
    ("model", &["crate::block", "crate::eviction", "crate::owner", "crate::snapshot"]),
    (
        "policy",
        &[
            "crate::act::auto_live",
            "crate::act::catalogue",
            "crate::act::controls",
            "crate::act::cycle",
            "crate::act::guard",
            "crate::act::hot_cold",
            "crate::act::keep",
            "crate::act::parameter",
            "crate::act::permitted",
            "crate::act::pingpong",
            "crate::act::reactor",
            "crate::act::room",
            "crate::act::scene",
            "crate::act::stream",
            "crate::act::tenants",
            "crate::act::upkeep",
            "crate::act::working_set",
        ],
    ),
    ("uvmctl", &["crate::heat", "crate::top"]),
    ("uvmctl", &["crate::top::fetch", "crate::top::samples"]),
    ("uvmd", &["crate::acting::actuation", "crate::acting::withdrawal"]),
    ("uvmd", &["crate::listeners", "crate::service"]),
    ("uvmd", &["crate::rules::bound", "crate::rules::change", "crate::rules::expiry"]),
    ("web", &["crate::auth", "crate::peers"]),
    ("web", &["crate::connection", "crate::connection_table"]),
    ("web", &["crate::guard", "crate::settings"]),
];

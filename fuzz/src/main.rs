//! Driver by libFuzzer of the target in `UVMD_FUZZ_TARGET`: `scripts/fuzz` builds and runs it.
#![no_main]

use std::{env, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&'static fuzz::Target> = LazyLock::new(|| {
    let name = env::var("UVMD_FUZZ_TARGET").unwrap_or_default();
    fuzz::target(&name).unwrap_or_else(|| std::process::exit(2))
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));

//! Generates the table of functions, and a stub for each that is not done, from `functions.txt`.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=functions.txt");
    println!("cargo:rerun-if-changed=build.rs");
    // Programs close the library while threads of it run, and open it again.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let text = fs::read_to_string("functions.txt")?;
    let (mut stubs, mut declared, mut rows) = (String::new(), String::new(), String::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.splitn(3, char::is_whitespace);
        let (Some(name), Some(since), Some(state)) = (words.next(), words.next(), words.next()) else {
            return Err(format!("functions.txt:{}: name, version and state are needed", number + 1).into());
        };
        let since: u32 = since.parse()?;
        let result = match state.trim().split(':').next() {
            Some("done") => None,
            Some("unsupported") => Some("NOT_SUPPORTED"),
            Some("never") => Some("NOT_FOUND"),
            _ => return Err(format!("functions.txt:{}: unknown state {state}", number + 1).into()),
        };
        if let Some(result) = result {
            writeln!(
                stubs,
                "#[unsafe(no_mangle)] extern \"C\" fn {name}() -> CUresult {{ absent(\"{name}\", CUresult::CUDA_ERROR_{result}) }}"
            )?;
        } else {
            writeln!(declared, "    fn {name}();")?;
        }
        writeln!(rows, "    Row {{ name: \"{name}\", since: {since}, function: {name} as *const () }},")?;
    }
    let code = format!("{stubs}\nunsafe extern \"C\" {{\n{declared}}}\n\nconst ROWS: &[Row] = &[\n{rows}];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("functions.rs"), code)?;
    Ok(())
}

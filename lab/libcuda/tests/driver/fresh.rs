//! Starts the tests again with the library of this build as `libcuda.so`, in place of the
//! machine's.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::symlink, process::CommandExt},
    process::Command,
};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let Ok(program) = env::current_exe() else { return };
    let folder = program.parent().unwrap().join("cuda-lab");
    if env::var_os("LD_LIBRARY_PATH").is_some_and(|path| path == folder.as_os_str()) {
        return;
    }
    fs::create_dir_all(&folder).unwrap();
    // Another process of the tests may make it at the same time.
    let _ = symlink("../libcuda_lab.so", folder.join("libcuda.so"));
    let line = fs::read("/proc/self/cmdline").unwrap();
    let arguments = line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0).skip(1);
    let arguments = arguments.map(|argument| OsString::from_vec(argument.to_vec()));
    let error = Command::new(&program).args(arguments).env("LD_LIBRARY_PATH", folder).exec();
    panic!("{error}");
}

//! Driver's own tests: requests of `uvm_test_ioctl.h`, which need the module parameter
//! `uvm_enable_builtin_tests=1`.

use std::{io, os::fd::AsRawFd};

use gpu::uvm::VaSpace;

/// Maximum size of parameters, larger than those of any test.
pub(crate) const PARAMETERS_MAX_BYTES: usize = 256;

/// Parameters of a test, as the driver reads and writes them.
#[repr(C, align(8))]
pub(crate) struct Parameters(pub(crate) [u8; PARAMETERS_MAX_BYTES]);

/// Number of `uvm_test_ioctl.h`, of a test whose parameters contain no address of memory that the
/// driver writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestNumber(pub(crate) u8);

/// `UVM_TEST_IOCTL_BASE`. The numbers are not encoded with _IOC.
const FIRST: libc::Ioctl = 200;

/// Runs a test on this VA space and its GPU. Its results are in the parameters.
pub(crate) fn run_test(va_space: &VaSpace, number: TestNumber, parameters: &mut Parameters) -> io::Result<()> {
    let request = FIRST + libc::Ioctl::from(number.0);
    // SAFETY: the driver reads and writes the test's own parameters at this address, which are
    // shorter than this block; and nothing else of this process, by the contract of TestNumber.
    let result = unsafe { libc::ioctl(va_space.file().as_raw_fd(), request, std::ptr::from_mut(parameters)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

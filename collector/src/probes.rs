//! The probes, loaded and attached, and their maps.

use std::{
    error::Error,
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Duration,
};

use abi::{CountKey, Layout, Lifecycle, LostReason, Probe, SelfTest, Tally, count::Space, names};
use aya::{
    Btf, Ebpf, EbpfLoader, Endianness,
    maps::{HashMap, Map, MapData, MapError, PerCpuArray, PerCpuHashMap, RingBuf},
    programs::{Iter, KProbe, ProgramError},
};

use crate::preconditions::Refusal;

/// The programs, as scripts/build-ebpf built them.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/uvmd-probes"));

/// In the order in which they are attached. Events count as lost from the first on, as nobody's yet; and a VA space must not be made before
/// its end can be seen.
const PROGRAMS: [(Probe, &str, &str); 4] = [
    (Probe::Notify, "uvm_notify", "uvm_perf_event_notify"),
    (Probe::DestroyReturn, "uvm_destroyed", "uvm_va_space_destroy"),
    (Probe::DestroyEntry, "uvm_destroy", "uvm_va_space_destroy"),
    (Probe::Register, "uvm_register", "uvm_va_space_mm_register"),
];

/// The iterator that finds the VA spaces which were there before the probes.
const ADOPT: &str = "uvm_adopt";
/// The kernel's function that stands for what it iterates over.
pub(crate) const ITERATED: &str = "bpf_iter_task_file";

/// How much memory the counts take, up front, where [`COUNTS_MIN`] needs no more. A process with faults and copies both ways uses about
/// ten entries on each GPU.
const COUNTS_MAX_BYTES: usize = 64 << 20;
/// Enough for 200 processes on eight GPUs each, whatever the number of CPUs: 128 MiB for 512 of them.
const COUNTS_MIN: usize = 16384;
/// More than the probes can have VA spaces for.
const COUNTS_MAX: usize = 65536;

/// How many entries the counts have room for on a machine with so many possible CPUs: each takes 16 bytes a CPU.
#[must_use]
pub(crate) fn counts_capacity(cpus: usize) -> u32 {
    let entries = COUNTS_MAX_BYTES / (size_of::<Tally>() * cpus.max(1));
    u32::try_from(entries.clamp(COUNTS_MIN, COUNTS_MAX)).unwrap_or(u32::MAX)
}

/// The probes in the kernel. Dropping it detaches them and frees the maps.
pub struct Probes {
    ebpf: Ebpf,
    counts: PerCpuHashMap<MapData, CountKey, Tally>,
    spaces: HashMap<MapData, u64, Space>,
    lifecycles: RingBuf<MapData>,
    lost: PerCpuArray<MapData, u64>,
    self_tests: PerCpuArray<MapData, u64>,
    hits: PerCpuArray<MapData, u64>,
}

impl Probes {
    /// Loads the probes for a layout, with room for so many counts. They do nothing until attached.
    ///
    /// # Errors
    /// If the kernel rejects them.
    pub(crate) fn load(layout: &Layout, counts_capacity: u32) -> Result<Self, Refusal> {
        let mut ebpf = EbpfLoader::new()
            // The probes need none of the kernel's types, and having them read costs 36 MB.
            .btf(None)
            .override_global(names::LAYOUT, layout, true)
            .map_max_entries(names::COUNTS, counts_capacity)
            .load(OBJECT)
            .map_err(|error| not_loaded(&error))?;
        for (_, program, _) in PROGRAMS {
            kprobe(&mut ebpf, program)?.load().map_err(|error| match error {
                // The verifier answers with "permission denied" where it rejects a program: what it says is in its log.
                ProgramError::LoadError { io_error, verifier_log } if !verifier_log.to_string().trim().is_empty() => {
                    Refusal::Load(format!("{io_error}: {}", tail(&verifier_log.to_string())))
                }
                other => not_loaded(&other),
            })?;
        }
        Ok(Self {
            counts: take(&mut ebpf, names::COUNTS)?,
            spaces: take(&mut ebpf, names::SPACES)?,
            lifecycles: take(&mut ebpf, names::LIFECYCLES)?,
            lost: take(&mut ebpf, names::LOST)?,
            self_tests: take(&mut ebpf, names::SELF_TESTS)?,
            hits: take(&mut ebpf, names::HITS)?,
            ebpf,
        })
    }

    /// Attaches all of them to the driver's functions.
    pub(crate) fn attach(&mut self) -> Result<(), Refusal> {
        for (_, program, function) in PROGRAMS {
            kprobe(&mut self.ebpf, program)?.attach(function, 0).map_err(|error| match io_error(&error) {
                Some(cause) if cause.kind() == io::ErrorKind::NotFound => Refusal::NoFunction(function),
                Some(cause) => {
                    not_permitted(cause).unwrap_or_else(|| Refusal::Attach { function, reason: chain(&error) })
                }
                None => Refusal::Attach { function, reason: chain(&error) },
            })?;
        }
        Ok(())
    }

    /// Finds the VA spaces that were there before the probes were attached; there will be a lifecycle record for each.
    ///
    /// `types`: the kernel's, among them at least [`ITERATED`].
    ///
    /// # Errors
    /// A sentence, if the kernel does not let uvmd use iterators.
    pub fn adopt(&mut self, types: &[u8]) -> Result<(), String> {
        let program = self.ebpf.program_mut(ADOPT).ok_or_else(|| format!("the object has no program {ADOPT}"))?;
        let program: &mut Iter = program.try_into().map_err(|error: ProgramError| chain(&error))?;
        if program.fd().is_err() {
            let types = Btf::parse(types, Endianness::default()).map_err(|error| chain(&error))?;
            program.load("task_file", &types).map_err(|error| chain(&error))?;
        }
        let link = program.attach().and_then(|link| program.take_link(link)).map_err(|error| chain(&error))?;
        let mut iterator = link.into_file().map_err(|error| chain(&error))?;
        // Reading is what makes it run. It writes nothing.
        while let Err(error) = io::copy(&mut iterator, &mut io::sink()) {
            // After a million files without output the kernel lets others run; the next reading goes on from there.
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    /// A descriptor that is readable when there are lifecycle records.
    pub(crate) fn lifecycles_fd(&self) -> io::Result<OwnedFd> {
        self.lifecycles.as_fd().try_clone_to_owned()
    }

    /// The lifecycle records since the last call.
    pub fn lifecycles(&mut self) -> Vec<Lifecycle> {
        let mut records = Vec::new();
        while let Some(item) = self.lifecycles.next() {
            records.extend(Lifecycle::from_bytes(&item));
        }
        records
    }

    /// Every count, summed over CPUs.
    ///
    /// # Errors
    /// If the kernel does not let the map be read.
    pub fn counts(&self) -> Result<Vec<(CountKey, Tally)>, MapError> {
        let sum = |tallies: &[Tally]| {
            tallies.iter().fold(Tally::default(), |sum, tally| Tally {
                events: sum.events.saturating_add(tally.events),
                amount: sum.amount.saturating_add(tally.amount),
            })
        };
        self.counts.iter().map(|entry| entry.map(|(key, tallies)| (key, sum(&tallies)))).collect()
    }

    /// Removes a count that is final and read.
    ///
    /// # Errors
    /// If the kernel does not let the map be changed.
    pub fn forget(&mut self, key: &CountKey) -> Result<(), MapError> {
        self.counts.remove(key)
    }

    /// Living VA spaces.
    ///
    /// # Errors
    /// If the kernel does not let the map be read.
    pub fn spaces(&self) -> Result<Vec<Space>, MapError> {
        self.spaces.iter().map(|entry| entry.map(|(_, space)| space)).collect()
    }

    /// Events not counted, by [`LostReason`].
    ///
    /// # Errors
    /// As for all of these: if the kernel does not let the map be read.
    pub fn lost(&self) -> Result<Vec<u64>, MapError> {
        read(&self.lost, LostReason::COUNT)
    }

    /// Failed self-tests, by [`SelfTest`].
    ///
    /// # Errors
    /// If the kernel does not let the map be read.
    pub fn self_tests(&self) -> Result<Vec<u64>, MapError> {
        read(&self.self_tests, SelfTest::COUNT)
    }

    /// Runs of the probes, by [`Probe`].
    ///
    /// # Errors
    /// If the kernel does not let the map be read.
    pub fn hits(&self) -> Result<Vec<u64>, MapError> {
        read(&self.hits, Probe::COUNT)
    }

    /// All that the probes and the kernel tell of how they do.
    pub(crate) fn figures(&self) -> Result<Figures, MapError> {
        let mut programs = [ProgramInfo::default(); PROGRAMS.len()];
        for (probe, name, _) in PROGRAMS {
            if let (Some(program), Some(info)) = (programs.get_mut(probe as usize), self.program_info(name)) {
                *program = info;
            }
        }
        Ok(Figures {
            hits: self.hits()?,
            lost: self.lost()?,
            self_tests: self.self_tests()?,
            programs,
            missed_returns: 0,
        })
    }

    fn program_info(&self, name: &str) -> Option<ProgramInfo> {
        let program: &KProbe = self.ebpf.program(name)?.try_into().ok()?;
        let fd = program.fd().ok()?.as_fd().as_raw_fd();
        Some(ProgramInfo::parse(&fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?))
    }

    /// The descriptor of a program, for whoever attaches it in another way than [`Self::attach`].
    #[doc(hidden)]
    #[must_use]
    pub fn program_fd(&self, name: &str) -> Option<&aya::programs::ProgramFd> {
        let program: &KProbe = self.ebpf.program(name)?.try_into().ok()?;
        program.fd().ok()
    }
}

/// How the probes did since they were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Runs, by [`Probe`].
    pub(crate) hits: Vec<u64>,
    /// By [`LostReason`].
    pub(crate) lost: Vec<u64>,
    /// Failed, by [`SelfTest`].
    pub(crate) self_tests: Vec<u64>,
    /// By [`Probe`].
    pub(crate) programs: [ProgramInfo; PROGRAMS.len()],
    /// Destructions of VA spaces that must have returned unseen.
    pub(crate) missed_returns: u64,
}

impl Figures {
    pub(crate) fn program(&self, probe: Probe) -> ProgramInfo {
        self.programs.get(probe as usize).copied().unwrap_or_default()
    }

    /// Runs of probes that the kernel left out. A lower bound: kernels before 6.7 do not tell when another program was at work on that CPU, and
    /// no kernel tells of kprobes that hit within a kprobe. What is seen of returns holds on all of them.
    pub(crate) fn skipped(&self) -> u64 {
        let returns = self.program(Probe::DestroyReturn).skipped;
        let all: u64 = self.programs.iter().map(|program| program.skipped).sum();
        all - returns + returns.max(self.missed_returns)
    }

    /// Destructions of VA spaces that have begun and not returned, as far as was seen.
    pub(crate) fn in_destruction(&self) -> u64 {
        let hits = |probe| self.hits.get(probe as usize).copied().unwrap_or_default();
        hits(Probe::DestroyEntry).saturating_sub(hits(Probe::DestroyReturn))
    }
}

/// What the kernel knows of a loaded program, from its descriptor's fdinfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramInfo {
    /// Where the kernel measures it: sysctl `kernel.bpf_stats_enabled`.
    pub(crate) run_time: Option<Duration>,
    /// Runs that were left out because another program, or a map's reader, was at work on that CPU.
    pub(crate) skipped: u64,
}

impl ProgramInfo {
    fn parse(fdinfo: &str) -> Self {
        let value = |key: &str| fdinfo.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        Self {
            run_time: value("run_time_ns:").filter(|ns| *ns > 0).map(Duration::from_nanos),
            skipped: value("recursion_misses:").unwrap_or_default(),
        }
    }
}

fn kprobe<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut KProbe, Refusal> {
    let program = ebpf.program_mut(name).ok_or_else(|| Refusal::Load(format!("the object has no program {name}")))?;
    program.try_into().map_err(|error: ProgramError| not_loaded(&error))
}

fn take<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Refusal> {
    let map = ebpf.take_map(name).ok_or_else(|| Refusal::Load(format!("the object has no map {name}")))?;
    map.try_into().map_err(|error| not_loaded(&error))
}

fn read(array: &PerCpuArray<MapData, u64>, length: u32) -> Result<Vec<u64>, MapError> {
    (0..length).map(|index| Ok(array.get(&index, 0)?.iter().sum())).collect()
}

fn not_loaded<E: Error + 'static>(error: &E) -> Refusal {
    io_error(error).and_then(not_permitted).unwrap_or_else(|| Refusal::Load(chain(error)))
}

fn not_permitted(cause: &io::Error) -> Option<Refusal> {
    (cause.kind() == io::ErrorKind::PermissionDenied).then_some(Refusal::NotPermitted)
}

/// What the kernel answered, somewhere below an error.
fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// The whole of an error in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let parts: Vec<_> = causes(error).map(ToString::to_string).collect();
    parts.join(": ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// The end of the verifier's log, where it says what is wrong.
fn tail(log: &str) -> String {
    const LINES: usize = 8;
    let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_take_at_most_64_mib_unless_that_were_too_few() {
        assert_eq!(counts_capacity(2), 65536);
        assert_eq!(counts_capacity(64), 65536);
        assert_eq!(counts_capacity(128), 32768);
        assert_eq!(counts_capacity(512), 16384);
        assert_eq!(counts_capacity(0), 65536);
    }

    #[test]
    fn run_times_are_known_only_where_the_kernel_measures_them() {
        let fdinfo = "pos:\t0\nprog_type:\t2\nrun_time_ns:\t0\nrun_cnt:\t0\nrecursion_misses:\t3\n";
        assert_eq!(ProgramInfo::parse(fdinfo), ProgramInfo { run_time: None, skipped: 3 });
        let measured = fdinfo.replace("run_time_ns:\t0", "run_time_ns:\t1500");
        assert_eq!(ProgramInfo::parse(&measured).run_time, Some(Duration::from_nanos(1500)));
        assert_eq!(ProgramInfo::parse(""), ProgramInfo::default());
    }

    #[test]
    fn returns_that_were_not_seen_are_skipped_runs_unless_the_kernel_says_so_itself() {
        let mut figures = Figures { missed_returns: 3, ..Figures::default() };
        figures.programs[Probe::Notify as usize].skipped = 10;
        assert_eq!(figures.skipped(), 13);
        figures.programs[Probe::DestroyReturn as usize].skipped = 4;
        assert_eq!(figures.skipped(), 14);
    }

    #[test]
    fn of_the_verifiers_log_the_end_is_kept() {
        let lines: Vec<_> = (0..100).map(|line| format!("line {line}\n")).collect();
        let log = lines.join("\n");
        let tail = tail(&log);
        assert!(tail.starts_with("line 92 |") && tail.ends_with("line 99"), "{tail}");
        assert_eq!(super::tail(""), "");
    }
}

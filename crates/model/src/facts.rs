//! Facts: what is constant for one incarnation of a node, such as versions, flags and limits.
//!
//! A recording stores facts as text, so that beamtune can show facts that only newer versions know. Lists are JSON arrays of strings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Declares fact keys and lists them in [`KEYS`].
macro_rules! keys {
    ($($const:ident = $key:literal, $what:literal;)+) => {
        $(#[doc = $what] pub const $const: &str = $key;)+
        /// All keys with their descriptions.
        pub const KEYS: &[(&str, &str)] = &[$(($key, $what)),+];
    };
}

keys! {
    NODE_NAME = "node_name", "Full node name.";
    OTP_RELEASE = "otp_release", "Major OTP release: `25`.";
    OTP_VERSION = "otp_version", "Full OTP version, if the installation states it: `25.2.3`.";
    ERTS_VERSION = "erts_version", "ERTS version: `13.1.5`.";
    SYSTEM_VERSION = "system_version", "The VM's banner: system_info(system_version).";
    EMU_TYPE = "emu_type", "`opt`, `debug`, `lcnt` …: system_info(build_type).";
    EMU_FLAVOR = "emu_flavor", "`jit` or `emu`; absent before OTP 24.";
    ARCHITECTURE = "architecture", "system_info(system_architecture).";
    START_TIME = "start_time", "VM start, native units of Erlang monotonic time: system_info(start_time).";
    CREATION = "creation", "Creation of the node: changes with each start.";
    OS_PID = "os_pid", "Process id of the VM in its own PID namespace: os:getpid/0.";
    HOST_PID = "host_pid", "Process id of the VM on its host, if different, as in a container.";

    EMU_ARGS = "emu_args", "JSON list: emulator flags from the command line and the environment: system_info(emu_args).";
    INIT_ARGS = "init_args", "JSON list: further arguments of init that matter for performance.";
    ENVIRONMENT = "environment", "JSON object: the environment variables that change flags (ERL_AFLAGS, ERL_FLAGS, ERL_ZFLAGS …); no other variable is recorded.";
    COMMAND_LINE = "command_line", "JSON list: the emulator's argv from /proc/PID/cmdline, without secrets.";

    SCHEDULERS = "schedulers", "Normal schedulers: +S.";
    SCHEDULERS_ONLINE = "schedulers_online", "Schedulers online at the start of the recording.";
    DIRTY_CPU_SCHEDULERS = "dirty_cpu_schedulers", "Dirty CPU schedulers.";
    DIRTY_CPU_SCHEDULERS_ONLINE = "dirty_cpu_schedulers_online", "Dirty CPU schedulers online.";
    DIRTY_IO_SCHEDULERS = "dirty_io_schedulers", "Dirty I/O schedulers.";
    ASYNC_THREADS = "async_threads", "Async threads: +A.";
    SCHEDULER_BIND_TYPE = "scheduler_bind_type", "`unbound`, `thread_no_node_processor_spread` …";
    SCHEDULER_BINDINGS = "scheduler_bindings", "JSON list: logical CPU of each scheduler, or `unbound`.";
    LOGICAL_PROCESSORS = "logical_processors", "Logical processors as detected by the VM.";
    LOGICAL_PROCESSORS_AVAILABLE = "logical_processors_available", "Logical processors available to the VM.";
    CPU_QUOTA = "cpu_quota", "CPU quota as detected by the VM; from 26.1 the number of online CPUs if there is no quota.";

    PROCESS_LIMIT = "process_limit", "Size of the process table: +P.";
    PORT_LIMIT = "port_limit", "Size of the port table: +Q.";
    ATOM_LIMIT = "atom_limit", "Size of the atom table: +t.";
    ETS_LIMIT = "ets_limit", "Value of +e: only a size hint, not a limit.";

    KERNEL_POLL = "kernel_poll", "`true` if the VM was built to wait with epoll or kqueue.";
    TIME_CORRECTION = "time_correction", "`true` or `false`: +c.";
    TIME_WARP_MODE = "time_warp_mode", "`no_time_warp`, `multi_time_warp` …: +C.";
    OS_MONOTONIC_SOURCE = "os_monotonic_time_source", "OS clock from which Erlang monotonic time is derived.";
    PERF_COUNTER_HZ = "perf_counter_hz", "msacc counter units per second.";
    NATIVE_TIME_HZ = "native_time_hz", "Native time units per second.";

    MESSAGE_QUEUE_DATA = "message_queue_data", "Default of message_queue_data for new processes: +hmqd.";
    FULLSWEEP_AFTER = "fullsweep_after", "Default for new processes: number of minor collections between fullsweeps.";
    MIN_HEAP_WORDS = "min_heap_size", "Default for new processes, in words.";
    MIN_BIN_VHEAP_WORDS = "min_bin_vheap_size", "Default for new processes, in words.";
    DIST_BUF_BUSY_LIMIT = "dist_buf_busy_limit", "Size in bytes at which a distribution buffer is busy and its senders are suspended: +zdbbl.";
    ASYNC_DIST = "async_dist", "Default of the async_dist flag: +pad; absent before 25.3.";
    PORT_PARALLELISM = "port_parallelism", "`true` or `false`: +spp.";
    ALLOCATORS = "allocators", "JSON list: allocators that have carriers; disabled ones end in `=false`.";

    APPLICATIONS = "applications", "JSON object: started applications and their versions.";
    ELIXIR_VERSION = "elixir_version", "Elixir version, if Elixir runs.";
    PRODUCT = "product", "Name and version of the product that the node runs: `RabbitMQ 3.10.8`.";
    MEMORY_WATERMARK_BYTES = "memory_watermark_bytes", "Resident memory above which RabbitMQ blocks publishers, in bytes, as reported by RabbitMQ.";
    MEMORY_WATERMARK_SET = "memory_watermark_set", "Setting of the memory watermark when RabbitMQ started: a share of the memory that RabbitMQ detects (`0.400000`), or a size (`2147483648`, `2GB`).";
    MEMORY_TOTAL_SET = "memory_total_set", "Total memory that RabbitMQ assumes in place of the host's: `total_memory_available_override_value`, a size.";
    MEMORY_ALARMS = "memory_alarms", "Nodes of a RabbitMQ cluster with an active memory alarm, if any; it blocks all publishers.";

    HOST_NAME = "host_name", "Name of the host.";
    KERNEL_VERSION = "kernel_version", "Kernel release of the host.";
    CPU_MODEL = "cpu_model", "Model of the host's first CPU.";
    MACHINE = "machine", "Vendor and model of the machine according to its firmware: `Amazon EC2 t3.medium`; the cloud's name for a virtual machine.";
    HOST_CPUS = "host_cpus", "Online CPUs of the host.";
    NATIVE_LIBRARIES = "native_libraries", "JSON list: paths of shared libraries that the VM has loaded from outside the system directories: NIFs and drivers, those of OTP included, or another malloc.";
    LOG_HANDLERS = "log_handlers", "JSON object: logger handlers with overload protection, keyed by the registered name of their process, each with sync_mode_qlen, drop_mode_qlen, flush_qlen, burst_limit_enable, burst_limit_max_count and its id: `{\"logger_std_h_default\":\"10 200 1000 true 500 default\"}`. At most 20.";
    NIFS = "nifs", "JSON list: NIFs of modules outside OTP, a few per module: `photo:hash_nif/4`.";
    NUMA_NODES = "numa_nodes", "JSON list: CPUs of each NUMA node that has any, as kernel lists: `[\"0-7\",\"8-15\"]`.";
    HOST_MEMORY = "host_memory", "Memory of the host, in bytes.";
    CPUS_ALLOWED = "cpus_allowed", "CPUs that the VM may run on, as a kernel list: `0-3,8`.";
    CGROUP_VERSION = "cgroup_version", "cgroup version of the CPU controller that limits the VM: `1` or `2`.";
    CGROUP_PATH = "cgroup_path", "Path of the control group with the tightest CPU quota.";
    CGROUP_OWN_PATH = "cgroup_own_path", "Path of the control group of the VM, the only one whose quota OTP reads.";
    CGROUP_REACHES_ROOT = "cgroup_reaches_root", "`true` if all control groups up to the root were visible; `false` within a container, where a tighter quota may apply above.";
    NOFILE_SOFT = "nofile_soft", "Soft limit on open file descriptors.";
    NOFILE_HARD = "nofile_hard", "Hard limit on open file descriptors.";
    HUGE_PAGES = "transparent_huge_pages", "Setting of transparent huge pages on the host: `always`, `madvise`, `never`.";
    CLOCKSOURCE = "clocksource", "Clock source of the host: `tsc`, `kvm-clock` …";
    LIBC = "libc", "C library of the emulator, if known.";
    MALLOC = "malloc", "The malloc that NIFs, drivers and the VM itself use: `glibc`, `musl`, `jemalloc` …, if known from a mapped library.";

    LOCK_SAMPLING_LENGTH = "locks_watched", "How long the VM's threads were sampled for lock waits, in nanoseconds; the table `lock_wait` holds the observed waits, and no row if there were none.";

    PROFILE_MISSING = "profile_missing", "Why no CPU profile was taken, as text; absent if none was requested, or the VM used too little CPU.";

    COLLECTED = "collected", "JSON list: processes named for garbage collection, by pid or registered name; the results are in the tables `collection` and `collected`.";
    UNANSWERED_LENGTH = "unanswered", "How long beamtune waited for the node before the recording, in nanoseconds, if the node accepted connections but let nobody log in; only the host was recorded.";

    RECORDED_BY = "recorded_by", "Version of beamtune that made the recording.";
    IMPORTED_FROM = "imported_from", "Source of an import: the tools whose output was imported, `lcnt`, `msacc`, `recon_alloc` …, comma-separated; `crash_dump` for a crash dump.";
    IMPORTED_REMARK = "imported_remark", "Which imported values are inexact, as text.";
    SYNTHETIC = "synthetic", "Synthetic recordings: which data are made up.";
    CRASH_SLOGAN = "crash_slogan", "Crash dumps: the slogan, which says why the VM terminated.";
    CRASH_TIME = "crash_time", "Crash dumps: start of the dump in local time of the node's host: `Mon Nov 23 05:28:30 2026`.";
    CRASH_PROCESS = "crash_process", "Crash dumps: the process that was executing on the thread that terminated the VM.";
    CRASH_TAINTS = "crash_taints", "Crash dumps: loaded modules with native code (NIFs), as the VM lists them.";
    CRASH_DUMP_MISSING = "crash_dump_missing", "Incomplete crash dumps: why, and what is missing.";
}

/// The value of [`IMPORTED_FROM`] for a crash dump.
pub const CRASH_DUMP: &str = "crash_dump";

/// The facts of one incarnation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(BTreeMap<String, String>);

impl Facts {
    /// Sets a fact; an empty value removes it.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        if value.is_empty() {
            self.0.remove(key);
        } else {
            self.0.insert(key.to_owned(), value);
        }
    }

    /// A fact as text.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A numeric fact; `None` for any other text.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.get(key)?.parse().ok()
    }

    /// A fact that is `true` or `false`; `None` for any other text.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.parse().ok()
    }

    /// A fact that is a JSON list of strings; `None` for any other text.
    pub fn list(&self, key: &str) -> Option<Vec<String>> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// A fact that is a JSON object of strings; `None` for any other text.
    pub fn object(&self, key: &str) -> Option<BTreeMap<String, String>> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// All facts, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Major OTP release.
    pub fn otp_release(&self) -> Option<u32> {
        self.get(OTP_RELEASE)?.parse().ok()
    }

    /// msacc counter units per second; positive.
    pub fn perf_counter_hz(&self) -> Option<f64> {
        self.hz(PERF_COUNTER_HZ)
    }

    /// Native time units per second; positive.
    pub fn native_time_hz(&self) -> Option<f64> {
        self.hz(NATIVE_TIME_HZ)
    }

    fn hz(&self, key: &str) -> Option<f64> {
        self.get(key)?.parse().ok().filter(|hz: &f64| hz.is_finite() && *hz > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_is_no_number_is_missing_rather_than_zero() {
        let mut facts = Facts::default();
        facts.set(PROCESS_LIMIT, "262144");
        facts.set(PORT_LIMIT, "many");
        facts.set(PERF_COUNTER_HZ, "0");
        assert_eq!(facts.number(PROCESS_LIMIT), Some(262_144));
        assert_eq!(facts.number(PORT_LIMIT), None);
        assert_eq!(facts.number(ATOM_LIMIT), None);
        assert_eq!(facts.perf_counter_hz(), None);
    }

    #[test]
    fn an_empty_value_removes_a_fact() {
        let mut facts = Facts::default();
        facts.set(CPU_QUOTA, "2");
        facts.set(CPU_QUOTA, "");
        assert_eq!(facts.get(CPU_QUOTA), None);
    }

    #[test]
    fn no_key_is_declared_twice() {
        let unique: std::collections::HashSet<_> = KEYS.iter().map(|(key, _)| key).collect();
        assert_eq!(unique.len(), KEYS.len());
    }
}

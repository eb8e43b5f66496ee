//! Facts: what is true of a node for a whole life of its VM: versions, flags, limits.
//!
//! A recording stores them as text, so that any version can show those that it does not know. Lists
//! are JSON arrays of strings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Declares fact keys and lists them in [`KEYS`].
macro_rules! keys {
    ($($const:ident = $key:literal, $what:literal;)+) => {
        $(#[doc = $what] pub const $const: &str = $key;)+
        /// Every key with what it holds.
        pub const KEYS: &[(&str, &str)] = &[$(($key, $what)),+];
    };
}

keys! {
    NODE_NAME = "node_name", "Full node name.";
    OTP_RELEASE = "otp_release", "Major OTP release: `25`.";
    OTP_VERSION = "otp_version", "Full OTP version where the installation tells: `25.2.3`.";
    ERTS_VERSION = "erts_version", "ERTS version: `13.1.5`.";
    SYSTEM_VERSION = "system_version", "The VM's banner: system_info(system_version).";
    EMU_TYPE = "emu_type", "`opt`, `debug`, `lcnt` …: system_info(build_type).";
    EMU_FLAVOR = "emu_flavor", "`jit` or `emu`; absent before OTP 24.";
    ARCHITECTURE = "architecture", "system_info(system_architecture).";
    START_TIME = "start_time", "VM start, native units of Erlang monotonic time: system_info(start_time).";
    CREATION = "creation", "Creation of the node: changes with each start.";
    OS_PID = "os_pid", "Process id of the VM as it sees it itself: os:getpid/0.";
    HOST_PID = "host_pid", "Process id of the VM on its host, where that is another one: in a container.";

    EMU_ARGS = "emu_args", "JSON list: flags that the emulator was given, command line and environment joined: system_info(emu_args).";
    INIT_ARGS = "init_args", "JSON list: further arguments of init that matter for performance.";
    ENVIRONMENT = "environment", "JSON object: the environment variables that change flags (ERL_AFLAGS, ERL_FLAGS, ERL_ZFLAGS …); no other variable is recorded.";
    COMMAND_LINE = "command_line", "JSON list: the emulator's argv from /proc/PID/cmdline, without secrets.";

    SCHEDULERS = "schedulers", "Normal schedulers: +S.";
    SCHEDULERS_ONLINE = "schedulers_online", "Of them online at the start of the recording.";
    DIRTY_CPU_SCHEDULERS = "dirty_cpu_schedulers", "Dirty CPU schedulers.";
    DIRTY_CPU_SCHEDULERS_ONLINE = "dirty_cpu_schedulers_online", "Of them online.";
    DIRTY_IO_SCHEDULERS = "dirty_io_schedulers", "Dirty I/O schedulers.";
    ASYNC_THREADS = "async_threads", "Async threads: +A.";
    SCHEDULER_BIND_TYPE = "scheduler_bind_type", "`unbound`, `thread_no_node_processor_spread` …";
    SCHEDULER_BINDINGS = "scheduler_bindings", "JSON list: logical CPU of each scheduler, or `unbound`.";
    LOGICAL_PROCESSORS = "logical_processors", "As the VM sees them.";
    LOGICAL_PROCESSORS_AVAILABLE = "logical_processors_available", "Of them, those that the VM may use.";
    CPU_QUOTA = "cpu_quota", "CPUs by quota as the VM sees it; from 26.1 the online CPUs where there is no quota.";

    PROCESS_LIMIT = "process_limit", "Size of the process table: +P.";
    PORT_LIMIT = "port_limit", "Size of the port table: +Q.";
    ATOM_LIMIT = "atom_limit", "Size of the atom table: +t.";
    ETS_LIMIT = "ets_limit", "Hint only, no limit: +e.";

    KERNEL_POLL = "kernel_poll", "`true` if the VM was built to wait with epoll or kqueue.";
    TIME_CORRECTION = "time_correction", "`true` or `false`: +c.";
    TIME_WARP_MODE = "time_warp_mode", "`no_time_warp`, `multi_time_warp` …: +C.";
    OS_MONOTONIC_SOURCE = "os_monotonic_time_source", "The clock below Erlang's monotonic time.";
    PERF_COUNTER_HZ = "perf_counter_hz", "Units of msacc counters in a second.";
    NATIVE_TIME_HZ = "native_time_hz", "Units of native time in a second.";

    MESSAGE_QUEUE_DATA = "message_queue_data", "Default placement of messages: +hmqd.";
    FULLSWEEP_AFTER = "fullsweep_after", "Default of new processes.";
    MIN_HEAP_WORDS = "min_heap_size", "Default of new processes, words.";
    MIN_BIN_VHEAP_WORDS = "min_bin_vheap_size", "Default of new processes, words.";
    DIST_BUF_BUSY_LIMIT = "dist_buf_busy_limit", "Bytes at which a distribution channel suspends its senders: +zdbbl.";
    ASYNC_DIST = "async_dist", "Default of the async_dist flag: +pad; absent before 25.3.";
    PORT_PARALLELISM = "port_parallelism", "`true` or `false`: +spp.";
    ALLOCATORS = "allocators", "JSON list: allocators with carriers; those disabled end in `=false`.";

    APPLICATIONS = "applications", "JSON object: started applications and their versions.";
    ELIXIR_VERSION = "elixir_version", "Version of Elixir where it runs.";
    PRODUCT = "product", "What the node runs, for a person: `RabbitMQ 3.10.8`.";
    MEMORY_WATERMARK_BYTES = "memory_watermark_bytes", "Resident memory from which RabbitMQ blocks publishers, bytes, as it told itself.";
    MEMORY_WATERMARK_SET = "memory_watermark_set", "What it was set to when RabbitMQ was started: a share of the memory that it sees (`0.400000`), or a size (`2147483648`, `2GB`).";
    MEMORY_TOTAL_SET = "memory_total_set", "The memory that RabbitMQ was told to have, where it does not take the host's: `total_memory_available_override_value`, a size.";
    MEMORY_ALARMS = "memory_alarms", "Nodes of a RabbitMQ cluster on which the memory alarm is in effect, where there are any: all publishers are blocked.";

    HOST_NAME = "host_name", "Name of the host.";
    KERNEL_VERSION = "kernel_version", "Release of the host's kernel.";
    CPU_MODEL = "cpu_model", "Model of the host's first CPU.";
    MACHINE = "machine", "Maker and model of the machine, as its firmware tells: `Amazon EC2 t3.medium`; of a virtual one, what the cloud calls it.";
    HOST_CPUS = "host_cpus", "CPUs online on the host.";
    NATIVE_LIBRARIES = "native_libraries", "JSON list: paths of shared libraries that the VM has loaded from elsewhere than the system's folders: NIFs and drivers, also of OTP's own, another malloc.";
    LOG_HANDLERS = "log_handlers", "JSON object: handlers of the logger with overload protection, by the registered name of their process, each with sync_mode_qlen, drop_mode_qlen, flush_qlen, burst_limit_enable, burst_limit_max_count and its id: `{\"logger_std_h_default\":\"10 200 1000 true 500 default\"}`. At most 20.";
    NIFS = "nifs", "JSON list: NIFs of modules that do not come with OTP, some of each: `photo:hash_nif/4`.";
    NUMA_NODES = "numa_nodes", "JSON list: the CPUs of each memory node of the host that has any, as kernel lists: `[\"0-7\",\"8-15\"]`.";
    HOST_MEMORY = "host_memory", "Memory of the host, bytes.";
    CPUS_ALLOWED = "cpus_allowed", "CPUs that the VM may run on, as a kernel list: `0-3,8`.";
    CGROUP_VERSION = "cgroup_version", "`1` or `2`: which kind of CPU controller limits the VM.";
    CGROUP_PATH = "cgroup_path", "Path of the control group whose CPU quota is the tightest.";
    CGROUP_OWN_PATH = "cgroup_own_path", "Path of the control group that the VM is in: the only one in which OTP looks for a quota.";
    CGROUP_REACHES_ROOT = "cgroup_reaches_root", "`true` if all control groups up to the root could be seen; `false` within a container, where tighter quotas may stand above.";
    NOFILE_SOFT = "nofile_soft", "Soft limit of file descriptors.";
    NOFILE_HARD = "nofile_hard", "Hard limit of file descriptors.";
    HUGE_PAGES = "transparent_huge_pages", "The host's setting: `always`, `madvise`, `never`.";
    CLOCKSOURCE = "clocksource", "The host's clock source: `tsc`, `kvm-clock` …";
    LIBC = "libc", "The C library that the emulator uses, where it can be told.";
    MALLOC = "malloc", "What gives memory to NIFs, drivers and the VM itself: `glibc`, `musl`, `jemalloc` …, where a mapped library tells.";

    LOCKS_WATCHED = "locks_watched", "For how long the VM's threads were watched for waits for locks, in nanoseconds; the table `lock_wait` holds what they were seen waiting in, and no row where they were not.";

    COLLECTED = "collected", "JSON list: the processes that somebody has named to be collected, by pid or registered name; what came of it stands in the tables `collection` and `collected`.";
    UNANSWERED = "unanswered", "For how long the node was waited for before the recording, in nanoseconds, where it accepted connections and let nobody in; the host alone was recorded.";

    RECORDED_BY = "recorded_by", "beamtune's version.";
    IMPORTED_FROM = "imported_from", "What was read in place of a node: the tools that have printed it, `lcnt`, `msacc`, `recon_alloc` …, with commas; `crash_dump` for a crash dump.";
    IMPORTED_REMARK = "imported_remark", "What of that is not exact, for a person.";
    SYNTHETIC = "synthetic", "Of a recording that nobody has measured: what was made up.";
    CRASH_SLOGAN = "crash_slogan", "Of a crash dump: why the VM ended, in its own words.";
    CRASH_TIME = "crash_time", "Of a crash dump: when it was begun, by the local time of the node's host: `Mon Nov 23 05:28:30 2026`.";
    CRASH_PROCESS = "crash_process", "Of a crash dump: the process that the thread was at which ended the VM.";
    CRASH_TAINTS = "crash_taints", "Of a crash dump: modules with native code (NIFs) that were loaded, as the VM lists them.";
    CRASH_DUMP_MISSING = "crash_dump_missing", "Of a crash dump that is not whole: why, and what is missing.";
}

/// The value of [`IMPORTED_FROM`] for a crash dump.
pub const CRASH_DUMP: &str = "crash_dump";

/// The facts of one life of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(BTreeMap<String, String>);

impl Facts {
    /// Sets a fact; an empty value takes it back.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        if value.is_empty() {
            self.0.remove(key);
        } else {
            self.0.insert(key.to_owned(), value);
        }
    }

    /// The text of a fact.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A fact that is a number; `None` also where it is none.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.get(key)?.parse().ok()
    }

    /// A fact that is `true` or `false`.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.parse().ok()
    }

    /// A fact that is a JSON list of strings; `None` also where it is none.
    pub fn list(&self, key: &str) -> Option<Vec<String>> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// A fact that is a JSON object of strings; `None` also where it is none.
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

    /// Units of msacc counters in a second; positive.
    pub fn perf_counter_hz(&self) -> Option<f64> {
        self.hz(PERF_COUNTER_HZ)
    }

    /// Units of native time in a second; positive.
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
    fn an_empty_value_takes_a_fact_back() {
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

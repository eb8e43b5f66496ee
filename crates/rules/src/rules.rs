//! All rules, in the order of their codes.

use crate::rule::Rule;

mod accept_queue;
mod async_threads;
mod atoms_near_limit;
mod binaries_retained;
mod bound_schedulers;
mod burstable_instance;
mod busy_distribution_port;
mod busy_supervisor;
mod busy_waiting;
mod carrier_sizing;
mod child_programs;
mod client_churn;
mod clock_off;
mod code_loading;
mod connection_churn;
mod contended_locks;
mod cpu_not_used;
mod cpu_starved;
mod cpu_throttled;
mod crash_loop;
mod dirty_schedulers_saturated;
mod ets_tables_growing;
mod external_waits;
mod flag_traps;
mod forced_collections;
mod fragmented_carriers;
mod gc_share;
mod growing_message_queue;
mod growing_work;
mod heap_settings;
mod hibernation;
mod hot_code;
mod huge_pages;
mod idle_heaps;
mod kernel_time;
mod known_fixes;
mod large_arguments;
mod large_messages;
mod large_objects;
mod links_and_monitors;
mod literal_area;
mod logger_overload;
mod long_gc;
mod long_schedule;
mod memory_growing;
mod memory_near_limit;
mod memory_outside;
mod mmap_churn;
mod mnesia_log_dumps;
mod mnesia_partitioned;
mod no_kernel_poll;
mod node_connection_attempts;
mod node_died;
mod numa;
mod overload;
mod oversized_port_table;
mod persistent_term_churn;
mod poll_thread_saturated;
mod port_backpressure;
mod ports_near_limit;
mod priorities;
mod processes_near_limit;
mod program_locks;
mod programs_left;
mod publishers_blocked;
mod queue_backlog;
mod redelivery_loop;
mod restart_loop;
mod scheduler_imbalance;
mod schedulers_against_quota;
mod segment_cache;
mod selective_receive;
mod serial_process;
mod slow_clock_source;
mod slow_emulator;
mod small_first_heaps;
mod spawn_storm;
mod super_carrier_full;
mod supervisor_memory;
mod swapped_out;
mod table_rows_growing;
mod table_scans;
mod too_few_schedulers;
mod trace_left_on;
mod udp_drops;
mod unread_messages;
mod unread_sockets;
mod waiting_callers;

/// All rules, in the order of their codes.
pub const RULES: &[Rule] = &[
    busy_waiting::RULE,
    cpu_throttled::RULE,
    schedulers_against_quota::RULE,
    cpu_starved::RULE,
    serial_process::RULE,
    growing_message_queue::RULE,
    processes_near_limit::RULE,
    ports_near_limit::RULE,
    atoms_near_limit::RULE,
    ets_tables_growing::RULE,
    gc_share::RULE,
    dirty_schedulers_saturated::RULE,
    no_kernel_poll::RULE,
    oversized_port_table::RULE,
    cpu_not_used::RULE,
    long_schedule::RULE,
    long_gc::RULE,
    busy_distribution_port::RULE,
    swapped_out::RULE,
    huge_pages::RULE,
    clock_off::RULE,
    slow_clock_source::RULE,
    restart_loop::RULE,
    fragmented_carriers::RULE,
    memory_outside::RULE,
    binaries_retained::RULE,
    memory_growing::RULE,
    super_carrier_full::RULE,
    segment_cache::RULE,
    literal_area::RULE,
    idle_heaps::RULE,
    forced_collections::RULE,
    contended_locks::RULE,
    slow_emulator::RULE,
    too_few_schedulers::RULE,
    burstable_instance::RULE,
    memory_near_limit::RULE,
    node_died::RULE,
    spawn_storm::RULE,
    unread_messages::RULE,
    selective_receive::RULE,
    logger_overload::RULE,
    links_and_monitors::RULE,
    port_backpressure::RULE,
    carrier_sizing::RULE,
    mmap_churn::RULE,
    small_first_heaps::RULE,
    persistent_term_churn::RULE,
    bound_schedulers::RULE,
    scheduler_imbalance::RULE,
    known_fixes::RULE,
    numa::RULE,
    waiting_callers::RULE,
    accept_queue::RULE,
    large_messages::RULE,
    async_threads::RULE,
    code_loading::RULE,
    table_scans::RULE,
    poll_thread_saturated::RULE,
    child_programs::RULE,
    programs_left::RULE,
    priorities::RULE,
    crash_loop::RULE,
    flag_traps::RULE,
    overload::RULE,
    program_locks::RULE,
    heap_settings::RULE,
    large_objects::RULE,
    redelivery_loop::RULE,
    client_churn::RULE,
    queue_backlog::RULE,
    publishers_blocked::RULE,
    hot_code::RULE,
    external_waits::RULE,
    udp_drops::RULE,
    trace_left_on::RULE,
    mnesia_partitioned::RULE,
    hibernation::RULE,
    unread_sockets::RULE,
    supervisor_memory::RULE,
    mnesia_log_dumps::RULE,
    large_arguments::RULE,
    connection_churn::RULE,
    table_rows_growing::RULE,
    growing_work::RULE,
    node_connection_attempts::RULE,
    busy_supervisor::RULE,
    kernel_time::RULE,
];

//! The conformance suite: what `docs/card-interface.md` demands of a function, as checks through
//! registers, rings, memory and interrupts alone.
//!
//! Whoever implements the interface (a model in the process, a card process, hardware) implements
//! [`Target`] for it and runs [`checks`]. Each check starts from a reset and leaves the function in
//! whatever state; nothing else may use it meanwhile. Checks wait by [`Target::pause`], a bounded
//! number of times, so they end even if the function does nothing at all.
//!
//! The crate is pure; with the feature `live` it has an adapter to cards that are served or plugged in.
//!
//! Jobs use kernels that every software card has, by name: `farside.nop`, `farside.increment`,
//! `farside.sum`, `farside.touch`, `farside.hold` and `farside.spin`. Where one is missing, or a
//! capability, the check says [`Verdict::NotRun`] and why; that is never a pass.

#![cfg_attr(not(feature = "live"), forbid(unsafe_code))]

mod client;
mod commands;
mod dma;
mod faults;
mod identity;
mod jobs;
#[cfg(feature = "live")]
pub mod live;
mod notices;
mod registers;
mod reset;
mod rings;
mod spaces;
mod tables;
mod window;
mod window_memories;

use std::time::Duration;

/// A function under test, and a driver's memory that it reaches.
pub trait Target {
    /// Reads four bytes of BAR0.
    fn read32(&mut self, offset: u64) -> u32;
    /// Reads eight bytes of BAR0 in one access.
    fn read64(&mut self, offset: u64) -> u64;
    /// Writes four bytes of BAR0.
    fn write32(&mut self, offset: u64, value: u32);
    /// Writes eight bytes of BAR0 in one access.
    fn write64(&mut self, offset: u64, value: u64);

    /// Memory that the function reaches: its bus address, a multiple of 4096 below 2^44. Zeroed.
    /// A check takes a few MiB at most.
    fn allocate(&mut self, bytes: usize) -> u64;
    /// Takes all of [`Target::allocate`] back; the function was reset before.
    fn release(&mut self);
    /// A bus address, a multiple of 4096 below 2^44, where this page and the next cannot be reached.
    fn unreachable(&mut self) -> u64;
    /// Reads memory that was allocated.
    fn read(&mut self, address: u64, into: &mut [u8]);
    /// Writes memory that was allocated.
    fn write(&mut self, address: u64, from: &[u8]);
    /// Reads a word of it (acquire).
    fn load(&mut self, address: u64) -> u32;
    /// Writes a word of it (release).
    fn store(&mut self, address: u64, value: u32);
    /// A full fence between accesses to it.
    fn fence(&mut self);

    /// Reads BAR2.
    fn read_frames(&mut self, offset: u64, into: &mut [u8]);
    /// Writes BAR2.
    fn write_frames(&mut self, offset: u64, from: &[u8]);

    /// Waits for an interrupt of a vector, and takes it. `false` after the limit.
    fn wait(&mut self, vector: u16, limit: Duration) -> bool;
    /// Lets the function go on for a moment, a millisecond at most.
    fn pause(&mut self);
    /// Pauses before something that must come counts as missing. A kernel that faults at each of some hundred pages must end
    /// within these, on a machine that does other things as well.
    fn patience(&self) -> u32 {
        10_000
    }
}

/// What came of a check that did not fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Everything was as it must be.
    Passed,
    /// The function lacks something that the check needs, and does not have to have it.
    NotRun(Lack),
}

/// What a function lacks for a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lack {
    /// A capability.
    Capability {
        /// Its bit of `CAPABILITIES`.
        bit: u64,
        /// Its name.
        name: &'static str,
    },
    /// Something else, in words.
    Other(String),
}

impl Lack {
    /// Whether it is the capability with this bit.
    pub fn is_capability(&self, capability: u64) -> bool {
        matches!(self, Lack::Capability { bit, .. } if *bit == capability)
    }
}

impl std::fmt::Display for Lack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lack::Capability { name, .. } => write!(f, "the function does not announce {name}"),
            Lack::Other(what) => f.write_str(what),
        }
    }
}

impl<T: Into<String>> From<T> for Lack {
    fn from(what: T) -> Lack {
        Lack::Other(what.into())
    }
}

/// One check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// What must hold.
    pub name: &'static str,
    /// Finds out. An error says what was wrong.
    pub run: fn(&mut dyn Target) -> Result<Verdict, String>,
}

/// Result of a check.
type Outcome = Result<Verdict, String>;

/// Makes checks of functions; the name is the function's.
macro_rules! list {
    ($($module:ident :: $check:ident),* $(,)?) => {
        &[$(Check { name: stringify!($check), run: $module::$check }),*]
    };
}

/// All checks, in an order that looks at simple things first.
pub fn checks() -> &'static [Check] {
    list![
        identity::a_function_names_itself_and_its_sizes,
        registers::reads_that_are_no_registers_give_ones_and_change_nothing,
        registers::writes_that_are_not_allowed_change_nothing_but_the_error,
        registers::errors_stay_until_a_one_is_written,
        registers::errors_signal_their_vector_once,
        registers::ring_registers_are_locked_while_the_rings_are_used,
        registers::the_counter_threshold_can_be_written,
        registers::rings_that_make_no_sense_are_found_when_they_are_enabled,
        registers::rings_that_cannot_be_reached_are_found_when_they_are_enabled,
        rings::indices_wrap_at_the_ring_and_at_the_word,
        rings::rings_of_every_kind_go_on_where_the_headers_say,
        rings::a_full_completion_ring_stops_commands_and_loses_nothing,
        rings::a_sleeping_driver_is_interrupted_and_an_awake_one_is_not,
        rings::quiet_commands_raise_no_interrupt_if_they_end_well,
        rings::a_driver_that_waits_for_room_is_told,
        rings::indices_that_make_no_sense_stop_the_function,
        rings::disabled_rings_are_not_touched_and_go_on_later,
        commands::entries_with_one_mistake_are_refused_by_the_word,
        commands::lists_with_one_mistake_are_refused_by_the_record,
        commands::what_the_state_forbids_is_refused_without_an_error,
        commands::foreign_frames_are_refused_and_counted,
        commands::answers_to_faults_that_are_not_open_are_counted,
        commands::links_are_refused_where_there_is_none,
        dma::copies_move_exactly_their_pages,
        dma::lists_are_carried_out_in_their_order,
        dma::copies_between_bus_pages_work_where_they_are_announced,
        dma::fills_repeat_their_word,
        dma::a_refused_extent_leaves_all_of_the_command_undone,
        dma::more_copies_than_go_at_once_wait_and_complete,
        dma::a_barrier_comes_behind_copies,
        jobs::kernels_are_found_by_name,
        jobs::a_kernel_runs_and_gives_its_value,
        jobs::a_message_says_what_went_wrong,
        jobs::jobs_wait_in_order_for_a_processing_element,
        jobs::jobs_are_aborted_running_or_waiting,
        jobs::a_barrier_waits_for_a_job,
        jobs::a_job_in_a_fault_is_aborted,
        faults::a_missing_page_faults_and_its_kernel_goes_on,
        faults::a_write_faults_on_a_page_that_may_be_read,
        faults::a_group_is_granted_whole_or_not_at_all,
        faults::a_resume_without_a_page_faults_again,
        faults::a_cancelled_fault_fails_its_job_and_no_other,
        faults::faults_are_answered_by_range_and_by_list,
        faults::unmap_and_protect_wait_for_who_holds_the_page,
        faults::unmapped_pages_fault_whatever_their_number,
        faults::a_full_fault_ring_loses_nothing,
        notices::remote_accesses_are_noticed_once_until_they_are_cleared,
        notices::a_full_notice_ring_loses_nothing,
        spaces::two_address_spaces_know_nothing_of_each_other,
        tables::mapped_pages_beyond_the_tlbs_do_not_fault,
        tables::no_byte_of_the_tables_is_in_the_memory_that_a_client_sees,
        tables::no_walk_cache_or_tlb_keeps_what_is_taken_away,
        tables::aligned_runs_are_split_where_a_part_changes,
        tables::an_unmap_tells_what_was_written,
        tables::bits_outlive_faults_rights_and_new_entries_for_the_same_place,
        tables::bits_of_many_pages_go_to_a_buffer,
        tables::accessed_bits_are_read_and_cleared,
        tables::an_unmap_beside_a_kernel_is_the_end_of_its_walks,
        tables::two_address_spaces_have_tables_and_bits_of_their_own,
        tables::full_tables_are_no_error,
        tables::what_finds_no_room_in_the_tables_is_served_by_faults,
        window::allocations_are_apart_grow_and_come_back,
        window::commands_for_the_window_that_make_no_sense_are_refused,
        window::a_full_window_memory_is_an_error_and_serves_again,
        window_memories::each_memory_gives_its_own_frames_and_gets_them_back,
        reset::a_reset_in_the_middle_of_everything_leaves_a_new_function,
        reset::a_reset_ends_a_failure,
    ]
}

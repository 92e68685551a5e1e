//! What the multi-FPGA SVM paper says, checked on its machine in simulated time. Constants are
//! fitted to Table II and to the user-managed rows of Table I; all else is predicted.

use farside_sim::cards::paper::{self, SIZES};
use farside_sim::cards::{
    CardMachine, CardsSpec, JobReport, Layout, Topology, Transport, Work, measure,
};
use farside_types::{CardId, PageRange, Span};

const KB_4: u64 = 1;
const KB_32: u64 = 8;
const MB_1: u64 = 256;
const MB_32: u64 = 8_192;

fn published(transport: Transport) -> CardsSpec {
    CardsSpec::preset("as-published").unwrap().with_transport(transport)
}

fn farside(transport: Transport) -> CardsSpec {
    CardsSpec::preset("farside").unwrap().with_transport(transport)
}

/// Relative errors in percent of what is simulated, over all transports and sizes.
fn errors(
    paper: impl Fn(Transport) -> paper::Micros,
    ours: impl Fn(&CardsSpec, u64) -> Span,
) -> Vec<f64> {
    let mut errors = Vec::new();
    for transport in Transport::ALL {
        for (size, micros) in SIZES.iter().zip(paper(transport)) {
            let simulated = ours(&published(transport), size.pages).as_micros_f64();
            errors.push(100.0 * (simulated / micros - 1.0));
        }
    }
    errors
}

fn mean(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64
}

fn largest(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).fold(0.0, f64::max)
}

fn card_to_card(spec: &CardsSpec, pages: u64) -> Span {
    measure::card_to_card(spec, pages, Layout::Contiguous).unwrap().time
}

#[test]
fn table_2_comes_out_as_fitted() {
    let errors = errors(paper::migration, card_to_card);
    assert!(mean(&errors) <= 2.5 && largest(&errors) <= 5.0, "{errors:.1?}");
}

#[test]
fn the_user_managed_rows_of_table_1_come_out_as_fitted() {
    let ours = |spec: &CardsSpec, pages| measure::update_user_managed(spec, pages).unwrap().time;
    let errors = errors(paper::user_managed, ours);
    assert!(mean(&errors) <= 3.5 && largest(&errors) <= 12.5, "{errors:.1?}");
}

#[test]
fn the_on_demand_rows_of_table_1_are_predicted_within_8_percent() {
    let ours = |spec: &CardsSpec, pages| measure::update_on_demand(spec, pages).unwrap().time;
    let errors = errors(paper::on_demand, ours);
    assert!(mean(&errors) <= 8.0, "{errors:.1?}");
}

#[test]
fn batches_on_demand_are_of_16_pages() {
    let report = measure::update_on_demand(&published(Transport::Ethernet), 1_024).unwrap();
    assert_eq!((report.faults, report.batches), (1_024, 64));
}

#[test]
fn user_managed_beats_on_demand_everywhere_and_twofold_from_4_mb_on() {
    for transport in Transport::ALL {
        let spec = published(transport);
        for size in SIZES {
            let demand = measure::update_on_demand(&spec, size.pages).unwrap().time;
            let managed = measure::update_user_managed(&spec, size.pages).unwrap().time;
            assert!(managed < demand, "{} {}", transport.name(), size.name);
        }
    }
    // "The highest speedup is achieved with UMPMs over Ethernet for buffer sizes from 4 MB on with
    // over 2x compared to the baseline."
    for pages in [1_024, MB_32] {
        let base = measure::update_on_demand(&published(Transport::Bounce), pages).unwrap().time;
        let best = measure::update_user_managed(&published(Transport::Ethernet), pages).unwrap();
        assert!(base.0 > 2 * best.time.0, "{pages}: {base:?} {best:?}");
    }
}

#[test]
fn endpoint_to_endpoint_wins_below_1_mb_and_ethernet_from_there_on() {
    for size in SIZES {
        let peer = card_to_card(&published(Transport::Peer), size.pages);
        let ethernet = card_to_card(&published(Transport::Ethernet), size.pages);
        assert_eq!(peer < ethernet, size.pages < MB_1, "{}: {peer:?} {ethernet:?}", size.name);
    }
}

#[test]
fn direct_transports_are_1_3_to_1_5_times_as_fast_as_the_bounce_buffer() {
    for size in SIZES {
        let bounce = card_to_card(&published(Transport::Bounce), size.pages);
        for transport in [Transport::Peer, Transport::Ethernet] {
            let direct = card_to_card(&published(transport), size.pages);
            let speedup = bounce.0 as f64 / direct.0 as f64;
            let (least, most) = (1.25, 1.5);
            assert!((least..=most).contains(&speedup), "{} {speedup:.2}", size.name);
        }
    }
}

#[test]
fn scattered_sources_cost_a_command_per_page_and_hardly_any_time() {
    for transport in Transport::ALL {
        for pages in [KB_32, MB_1, 2_048] {
            let time = |layout| {
                measure::card_to_card(&published(transport), pages, layout).unwrap().time.0
            };
            let (contiguous, scattered) = (time(Layout::Contiguous), time(Layout::Scattered));
            let penalty = scattered as f64 / contiguous as f64 - 1.0;
            assert!((0.0..=0.03).contains(&penalty), "{} {pages}: {penalty}", transport.name());
        }
    }
    // An engine that takes one command at a time shows that there are as many as pages.
    let one = [("dma.commands_max", "1"), ("dma.command_ns", "1000")];
    let spec = published(Transport::Ethernet).with_overrides(&one).unwrap();
    let time = |layout| measure::card_to_card(&spec, MB_1, layout).unwrap().time;
    assert!(time(Layout::Scattered).0 > time(Layout::Contiguous).0 + 100_000_000);
}

/// The shares of setup, copy and finalize in percent.
fn shares(transport: Transport, pages: u64) -> [f64; 3] {
    let migration =
        measure::card_to_card(&published(transport), pages, Layout::Contiguous).unwrap();
    let steps = migration.steps;
    assert_eq!(steps.total(), migration.time, "a single migration does nothing else");
    [steps.setup, steps.dma, steps.finalize]
        .map(|step| 100.0 * step.0 as f64 / migration.time.0 as f64)
}

#[test]
fn the_steps_have_the_shares_of_figure_6() {
    for transport in Transport::ALL {
        let [setup_4k, dma_4k, _] = shares(transport, KB_4);
        let [setup_1m, dma_1m, _] = shares(transport, MB_1);
        let [_, dma_32m, finalize_32m] = shares(transport, MB_32);
        let name = transport.name();
        assert!((17.0..=26.0).contains(&setup_4k), "{name}: setup at 4 kB {setup_4k:.1}");
        assert!(setup_1m < 10.0, "{name}: setup at 1 MB {setup_1m:.1}");
        let expected = paper::finalize_percent(transport);
        assert!((finalize_32m - expected).abs() <= 3.0, "{name}: finalize {finalize_32m:.1}");
        if transport == Transport::Bounce {
            for dma in [dma_4k, dma_1m, dma_32m] {
                assert!((60.0..=75.0).contains(&dma), "{name}: copy {dma:.1}");
            }
        } else {
            for (dma, about) in [(dma_4k, 50.0), (dma_1m, 55.0), (dma_32m, 50.0)] {
                assert!((dma - about).abs() <= 4.0, "{name}: copy {dma:.1}");
            }
        }
    }
}

#[test]
fn interrupts_in_place_of_polling_show_at_1_mb() {
    for transport in Transport::ALL {
        let [_, dma_512k, finalize_512k] = shares(transport, 127);
        let [_, dma_1m, finalize_1m] = shares(transport, 128);
        assert!(dma_1m > dma_512k && finalize_1m < finalize_512k, "{}", transport.name());
    }
}

#[test]
fn cards_are_slower_than_the_host_below_1_mb_and_almost_1_4_times_as_fast_at_32_mb() {
    let host = |pages| measure::host_to_card(&published(Transport::Ethernet), pages).unwrap();
    for size in SIZES {
        let from_host = host(size.pages);
        for transport in [Transport::Peer, Transport::Ethernet] {
            let direct = card_to_card(&published(transport), size.pages);
            assert_eq!(direct > from_host.time, size.pages < MB_1, "{}", size.name);
        }
    }
    let from_host = host(MB_32);
    let ethernet =
        measure::card_to_card(&published(Transport::Ethernet), MB_32, Layout::Contiguous).unwrap();
    let speedup = from_host.time.0 as f64 / ethernet.time.0 as f64;
    assert!((1.33..1.4).contains(&speedup), "{speedup:.3}");
    assert!(ethernet.steps.dma > from_host.steps.dma, "the copy itself takes longer");
    let bounce = card_to_card(&published(Transport::Bounce), MB_32).0 as f64;
    let behind = bounce / from_host.time.0 as f64;
    assert!((1.0..1.1).contains(&behind), "the bounce buffer almost reaches it: {behind:.3}");
    let to_host = measure::card_to_host(&published(Transport::Ethernet), MB_32).unwrap();
    assert!(to_host.time > ethernet.time);
    assert_eq!(to_host.steps.setup, ethernet.steps.setup, "only finalizing differs");
}

#[test]
fn an_unloaded_migration_takes_the_sum_of_its_parameters() {
    for (transport, latency, page) in [
        (Transport::Peer, 4_900_000, 403_000),
        (Transport::Ethernet, 6_500_000, 364_920),
        (Transport::Bounce, 2 * (3_400_000 + 1_500_000) + 100_000, 2 * 331_500),
    ] {
        let pages = 32;
        // Setup with its drain, the write of a command, copy, finalize.
        let software = 1_900_000 + 1_000_000 + 100_000 + 2_800_000 + pages * (43_000 + 327_000);
        let expected = Span(software + latency + pages * page);
        assert_eq!(card_to_card(&published(transport), pages), expected, "{}", transport.name());
    }
}

#[test]
fn a_link_saturates_at_its_bandwidth() {
    let share = |transport, page_ps: f64| {
        let spec = published(transport);
        let sent = measure::all_to_all(&spec, MB_32).unwrap();
        let at_most = 2.0 * 4_096.0 / page_ps * 1e3;
        let software = card_to_card(&spec, MB_32).as_secs_f64() - MB_32 as f64 * page_ps * 1e-12;
        (sent.gb_per_s() / at_most, software / sent.time.as_secs_f64())
    };
    for (transport, page) in [(Transport::Peer, 403_000.0), (Transport::Ethernet, 364_920.0)] {
        let (used, software) = share(transport, page);
        assert!(used < 1.0 && (used + software - 1.0).abs() < 0.01, "{used:.3} {software:.3}");
    }
    // Into one port of a switch: seven arrays one behind the other, before and after which one
    // array's software is all there is.
    let mut spec =
        published(Transport::Ethernet).with_overrides(&[("machine.cards", "8")]).unwrap();
    spec.ethernet.topology = Topology::Switch;
    let pages = 4_096;
    let one_port = measure::all_to_one(&spec, pages).unwrap();
    let software = card_to_card(&spec, pages).0 - pages * 364_920;
    assert_eq!(one_port.time, Span(7 * pages * 364_920 + software));
}

#[test]
fn a_switch_adds_its_latency_and_shares_ports() {
    let direct = published(Transport::Ethernet).with_overrides(&[("machine.cards", "8")]).unwrap();
    let mut switch = direct.clone();
    switch.ethernet.topology = Topology::Switch;
    let added = Span::from_nanos(direct.ethernet.switch_ns);
    assert_eq!(card_to_card(&switch, KB_32), card_to_card(&direct, KB_32) + added);
    let [direct, switch] = [direct, switch].map(|spec| measure::all_to_one(&spec, MB_1).unwrap());
    assert!(switch.time.0 > 2 * direct.time.0, "{switch:?} {direct:?}");
}

#[test]
fn ethernet_scales_where_the_root_complex_does_not() {
    let rate = |transport, cards: &str| {
        let spec = published(transport).with_overrides(&[("machine.cards", cards)]).unwrap();
        measure::all_to_all(&spec, 128).unwrap().gb_per_s()
    };
    for cards in ["4", "16"] {
        assert!(rate(Transport::Ethernet, cards) > rate(Transport::Peer, cards), "{cards} cards");
    }
    assert!(rate(Transport::Ethernet, "16") > 3.0 * rate(Transport::Ethernet, "4"));
    let root = 4_096.0 / 64.0;
    assert!(rate(Transport::Peer, "16") < root);
    assert!(rate(Transport::Bounce, "16") < 1.5 * rate(Transport::Bounce, "2"), "one buffer");
}

#[test]
fn our_driver_gives_more_on_the_same_hardware() {
    for transport in Transport::ALL {
        let (theirs, ours) = (published(transport), farside(transport));
        let demand = |spec| measure::update_on_demand(spec, MB_32).unwrap();
        let (before, after) = (demand(&theirs), demand(&ours));
        assert_eq!((before.batches, after.batches), (512, 96), "the tree fills blocks of 2 MiB");
        assert!(before.time.0 * 10 > after.time.0 * 14, "{before:?} {after:?}");
        for size in SIZES {
            let (before, after) =
                (card_to_card(&theirs, size.pages), card_to_card(&ours, size.pages));
            assert!(after + theirs_drain(&theirs) <= before, "{}", size.name);
        }
    }
}

fn theirs_drain(spec: &CardsSpec) -> Span {
    Span::from_nanos(spec.host.drain_ns)
}

#[test]
fn larger_batches_make_demand_faster_and_entries_of_2_mib_halve_the_rest() {
    let with =
        |values: &[(&str, &str)]| published(Transport::Ethernet).with_overrides(values).unwrap();
    let time = |batch: &str| {
        let values = [
            ("mmu.reads_in_flight", batch),
            ("mmu.fault_entries", "512"),
            ("driver.fault_batch", "512"),
            ("pe.page_ns", "0"),
        ];
        measure::update_on_demand(&with(&values), MB_32).unwrap().time.as_secs_f64() * 1e3
    };
    // Without the work of the processing element.
    let [t16, t64, t256, t512] = ["16", "64", "256", "512"].map(time);
    assert!(t16 > 1.8 * t64 && t64 > 1.2 * t256 && t256 > t512, "{t16} {t64} {t256} {t512}");
    let moved = card_to_card(&published(Transport::Ethernet), MB_32).as_secs_f64() * 1e3;
    assert!(t16 > 2.5 * moved && t512 < 1.25 * moved, "{t16} {t512} {moved}");
    let huge = with(&[("host.entry_pages", "512"), ("host.poll_below_pages", "1000000")]);
    let found = card_to_card(&huge, MB_32).as_secs_f64() * 1e3;
    assert!((3.0..3.2).contains(&found), "{found:.2} ms");
}

#[test]
fn few_steps_through_a_list_are_better_on_demand_and_many_are_not() {
    let spec = published(Transport::Ethernet);
    let both = |nodes| {
        let demand = measure::chase_on_demand(&spec, 1_024, nodes).unwrap();
        (demand, measure::chase_user_managed(&spec, 1_024, nodes).unwrap())
    };
    let (few, all) = both(4);
    assert!(few.time.0 * 5 < all.time.0);
    assert_eq!((few.faults, few.batches), (4, 4), "a list has one fault at a time");
    let (many, all) = both(1_024);
    assert!(many.time.0 > 10 * all.time.0);
}

#[test]
fn translations_that_the_mmu_has_lost_come_back_without_a_move() {
    let mut machine = CardMachine::new(published(Transport::Peer)).unwrap();
    let array = machine.allocate(2_048 * 4_096, "list").unwrap();
    // 128 pieces of 16 pages: more than the flexible and the L2 entries together.
    for first in (0..2_048).step_by(16) {
        let piece = PageRange::new(array.start.offset(first), 16);
        machine.migrate(piece, CardId(1).memory()).unwrap();
    }
    let moved = machine.driver_stats().migrations;
    let report = machine.run(CardId(1), Work::chase(array, 2_048)).unwrap();
    assert!(report.faults > 0);
    assert_eq!(machine.driver_stats().migrations, moved);
    assert_eq!(machine.driver_stats().refills, report.faults);
}

/// A list through more pieces of memory than the MMU has entries for, on cards with so many table pages.
fn lost_translations(table_pages: u32) -> (JobReport, CardMachine) {
    let mut spec = farside(Transport::Ethernet);
    spec.mmu.table_pages = table_pages;
    let mut machine = CardMachine::new(spec).unwrap();
    let array = machine.allocate(4_096 * 4_096, "list").unwrap();
    machine.place(array, CardId(1), Layout::Scattered).unwrap();
    let job = machine.run(CardId(1), Work::chase(array, 8_192)).unwrap();
    (job, machine)
}

#[test]
fn cards_with_tables_walk_where_others_ask_the_driver() {
    let (without, _) = lost_translations(0);
    let (with, machine) = lost_translations(64);
    assert_eq!((with.faults, without.walks), (0, 0));
    assert!(without.faults > 1_000 && with.walks > 1_000, "{without:?} {with:?}");
    assert!(with.time.0 * 10 < without.time.0, "{without:?} {with:?}");
    let stats = machine.card_stats(CardId(1)).unwrap();
    assert_eq!((stats.walks, stats.misses, stats.table_full), (with.walks, 0, 0));
}

#[test]
fn a_walk_takes_a_read_for_each_level() {
    // Its three levels are 216 cycles of 300 MHz, behind the lookups of the TLBs.
    let slower = |cycles| {
        let mut spec = farside(Transport::Ethernet);
        (spec.mmu.table_pages, spec.mmu.walk_level_cycles) = (64, cycles);
        let mut machine = CardMachine::new(spec).unwrap();
        let array = machine.allocate(4_096 * 4_096, "list").unwrap();
        machine.place(array, CardId(1), Layout::Scattered).unwrap();
        machine.run(CardId(1), Work::chase(array, 8_192)).unwrap()
    };
    let (free, walks) = (slower(0), slower(72));
    assert_eq!((free.faults, free.walks), (walks.faults, walks.walks));
    let each = (walks.time.0 - free.time.0) / walks.walks;
    assert_eq!(each, 3 * 72 * 1_000_000 / 300);
}

#[test]
fn tables_that_are_full_send_the_rest_to_the_driver() {
    let (some, machine) = lost_translations(4);
    assert!(some.faults > 0 && some.walks > 0, "{some:?}");
    assert!(machine.card_stats(CardId(1)).unwrap().table_full > 0);
}

#[test]
fn the_first_papers_cards_have_no_tables_and_the_cost_of_a_walk_changes_nothing() {
    let mut other = published(Transport::Ethernet);
    other.mmu.walk_level_cycles = 1_000;
    assert_eq!(other.mmu.table_pages, 0);
    for pages in [KB_4, MB_1] {
        let run = |spec: &CardsSpec| measure::update_on_demand(spec, pages).unwrap();
        assert_eq!(run(&other), run(&published(Transport::Ethernet)));
        assert_eq!(run(&other).walks, 0);
    }
}

#[test]
fn cards_that_fight_over_an_array_both_end_and_no_write_is_lost() {
    for spec in [published(Transport::Ethernet), farside(Transport::Bounce)] {
        let mut machine = CardMachine::with_checker(spec, true).unwrap();
        let array = machine.allocate(64 * 4_096, "shared").unwrap();
        let job = |card| (CardId(card), Work::Update { pages: array });
        let reports = machine.run_all(vec![job(0), job(1)]).unwrap();
        assert!(reports.iter().all(|report| report.faults > 0));
        machine.settle().unwrap();
    }
}

#[test]
fn a_run_repeats_itself_to_the_picosecond_with_and_without_the_checker() {
    let run = |check| {
        let mut machine = CardMachine::with_checker(farside(Transport::Ethernet), check).unwrap();
        let array = machine.allocate(300 * 4_096, "array").unwrap();
        machine.place(array, CardId(0), Layout::Scattered).unwrap();
        let report = machine.run(CardId(1), Work::Update { pages: array }).unwrap();
        (report, machine.now(), machine.sending(CardId(0)).unwrap())
    };
    assert_eq!(run(true), run(true));
    assert_eq!(run(true), run(false));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let mut machine = CardMachine::new(published(Transport::Peer)).unwrap();
    let array = machine.allocate(4_096, "array").unwrap();
    let error = machine.migrate(array, CardId(2).memory()).unwrap_err().to_string();
    assert!(error.contains("card 2") && error.contains("2 cards"), "{error}");
    let wild = PageRange::new(array.end(), 1);
    let error = machine.migrate(wild, CardId(0).memory()).unwrap_err().to_string();
    assert!(error.contains("not allocated"), "{error}");
    let job = Work::Update { pages: wild };
    let error = machine.run(CardId(0), job).unwrap_err().to_string();
    assert!(error.contains("cannot access"), "{error}");
}

#[test]
fn the_machines_of_the_experiments_can_be_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/tapasco");
    let open = |name: &str| CardsSpec::open(&std::path::Path::new(folder).join(name)).unwrap();
    assert_eq!(open("ethernet.toml"), CardsSpec::default());
    assert_eq!(open("bounce.toml"), published(Transport::Bounce));
    assert_eq!(open("peer.toml"), published(Transport::Peer));
    assert_eq!(open("farside.toml"), farside(Transport::Ethernet));
    assert_eq!(open("switch-16.toml").ethernet.topology, Topology::Switch);
    for name in ["batches-64.toml", "entries-2mib.toml"] {
        assert_ne!(open(name), CardsSpec::default());
    }
}

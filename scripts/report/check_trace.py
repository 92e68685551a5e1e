"""Checks a trace of `farside report --perfetto` against Perfetto's own messages, and its counts against the report's.

    check_trace.py TRACE REPORT

TRACE is read by the messages of Perfetto's Python package: nothing unknown may be in it. REPORT is what `--json` has
printed of the same logs. Damaged copies of the trace have to be refused, or this check would find nothing. Where
Perfetto's `trace_processor_shell` is installed, it has to find the same; no registry of packages has it.
"""

import collections
import json
import pathlib
import shutil
import sys

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, Trace, TrackEvent

BEGIN, END, COUNTER = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_COUNTER


def unknown(message):
    """Whether a message or one in it has a field that Perfetto does not know."""
    if len(UnknownFieldSet(message)) > 0:
        return True
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = value if field.is_repeated else [value]
            if any(unknown(part) for part in parts):
                return True
    return False


def complaints(data):
    """What is wrong with a trace."""
    trace = Trace()
    try:
        trace.ParseFromString(data)
    except DecodeError as error:
        return [str(error)]
    found = ["a field that Perfetto does not know"] if unknown(trace) else []
    tracks, depth, time = {}, collections.Counter(), {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.uuid in tracks:
                found.append(f"two tracks with number {track.uuid}")
            if not track.HasField("process") and track.parent_uuid not in tracks:
                found.append(f"track {track.name!r} before its parent")
            tracks[track.uuid] = track
            continue
        event, at = packet.track_event, packet.timestamp
        if event.track_uuid not in tracks:
            found.append(f"an event at {at} on a track that nobody has described")
            continue
        name = tracks[event.track_uuid].name
        # What happens in a moment may be in any order: Perfetto sorts it. Kernels would lie in each other.
        if event.type in (BEGIN, END, COUNTER) and at < time.get(event.track_uuid, 0):
            found.append(f"{name!r} goes back in time at {at}")
        time[event.track_uuid] = at
        if (event.type == COUNTER) != tracks[event.track_uuid].HasField("counter"):
            found.append(f"{name!r} mixes counters and events")
        depth[event.track_uuid] += {BEGIN: 1, END: -1}.get(event.type, 0)
        if depth[event.track_uuid] not in (0, 1):
            found.append(f"kernels of {name!r} overlap or end twice at {at}")
    found += [f"a kernel of {tracks[uuid].name!r} does not end" for uuid, open_ in depth.items() if open_]
    return found


def varint(number):
    """A number as protocol buffers have it."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def damaged(data):
    """Copies of a trace with one packet less or another one, by what has to be complained of."""
    trace = Trace.FromString(data)

    def without(which):
        copy, gone = Trace(), False
        for packet in trace.packet:
            if gone or not which(packet):
                copy.packet.append(packet)
            gone = gone or which(packet)
        assert gone, "there is no such packet"
        return copy.SerializeToString()

    def unknown_inside():
        # A packet that all is right with, but for a field of its description that nobody knows.
        track = Trace.FromString(data).packet[0].track_descriptor.SerializeToString() + bytes(
            [0xC2, 0xBB, 0x01, 0x01, 0x00]
        )
        track = track.replace(
            bytes([0x08]) + varint(Trace.FromString(data).packet[0].track_descriptor.uuid), bytes([0x08, 0x01]), 1
        )
        packet = bytes([0xE2, 0x03]) + varint(len(track)) + track
        return bytes([0x0A]) + varint(len(packet)) + packet + data

    yield "on a track that nobody has described", without(lambda it: it.track_descriptor.name == "program")
    yield "does not end", without(lambda it: it.track_event.type == END)
    yield "a field that Perfetto does not know", unknown_inside()
    yield "Error parsing message", data[:-1]


def compare(data, report):
    """Kernels and bytes of the trace against those of the report."""
    runs = report if isinstance(report, list) else [report]
    events = [packet.track_event for packet in Trace.FromString(data).packet if packet.HasField("track_event")]
    kernels = sum(event.type == BEGIN for event in events)
    assert kernels == sum(run["totals"]["kernels"] for run in runs), f"{kernels} kernels"
    assert kernels > 0, "no kernel in the trace"
    faults = sum(event.name.startswith("fault-") for event in events)
    assert faults == sum(run["totals"]["faults"] for run in runs), f"{faults} faults"
    tracks = [packet.track_descriptor for packet in Trace.FromString(data).packet]
    bytes_in = [track for track in tracks if track.counter.unit == CounterDescriptor.UNIT_SIZE_BYTES]
    assert len(bytes_in) >= 2 * len(runs), "no counter of what is in host and cards"
    return kernels, faults, len(bytes_in)


def processed(path, kernels, shell):
    """The kernels that Perfetto's own processor finds."""
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(trace=str(path), config=TraceProcessorConfig(bin_path=shell)) as processor:
        (row,) = processor.query("select count(*) as kernels from slice where dur > 0 or dur = 0")
        (lost,) = processor.query("select ifnull(sum(value), 0) as lost from stats where severity = 'error'")
        assert row.kernels >= kernels, f"trace_processor finds {row.kernels} kernels of {kernels}"
        assert lost.lost == 0, f"trace_processor has {lost.lost} errors"


def main():
    path, report = map(pathlib.Path, sys.argv[1:])
    data = path.read_bytes()
    wrong = complaints(data)
    if wrong:
        sys.exit(f"check_trace.py: {path.name}: {len(wrong)} complaints: {'; '.join(wrong[:5])}")
    for what, copy in damaged(data):
        if not any(what in complaint for complaint in complaints(copy)):
            sys.exit(f"check_trace.py: nothing complains of {what!r} in a damaged trace, but {complaints(copy)[:3]}")
    kernels, faults, counters = compare(data, json.loads(report.read_text()))
    shell = shutil.which("trace_processor_shell")
    if shell:
        processed(path, kernels, shell)
    by = "and Perfetto's trace_processor" if shell else "alone; NOT RUN: trace_processor_shell is not installed"
    print(f"report: {kernels} kernels, {faults} faults, {counters} counters of bytes in a trace: by its messages {by}")


main()

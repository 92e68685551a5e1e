//! The messages of Perfetto's traces that are written here, with the numbers of its
//! [`perfetto_trace.proto`](https://github.com/google/perfetto/blob/main/protos/perfetto/trace/perfetto_trace.proto).
//! What a message has besides is not written.

use prost::Message;

/// A file: packets one after the other.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(crate) packet: Vec<TracePacket>,
}

/// Something that happened, or the description of a track.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacket {
    /// In nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    /// Whose packets these are; 0 is nobody's.
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
}

/// A track: of a process, of a counter, or of slices and instants.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(crate) counter: Option<CounterDescriptor>,
}

/// A process; here: a run.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) process_name: Option<String>,
}

/// What a counter counts.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CounterDescriptor {
    /// [`UNIT_SIZE_BYTES`], or nothing.
    #[prost(int32, optional, tag = "3")]
    pub(crate) unit: Option<i32>,
    /// Where that says nothing.
    #[prost(string, optional, tag = "6")]
    pub(crate) unit_name: Option<String>,
}

/// `CounterDescriptor.Unit`.
pub(crate) const UNIT_SIZE_BYTES: i32 = 3;

/// Something that happened on a track.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub(crate) debug_annotations: Vec<DebugAnnotation>,
    /// One of those below.
    #[prost(int32, optional, tag = "9")]
    pub(crate) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub(crate) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(crate) counter_value: Option<i64>,
}

/// `TrackEvent.Type`.
pub(crate) const SLICE_BEGIN: i32 = 1;
pub(crate) const SLICE_END: i32 = 2;
pub(crate) const INSTANT: i32 = 3;
pub(crate) const COUNTER: i32 = 4;

/// An argument of an event.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    pub(crate) uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub(crate) string_value: Option<String>,
    /// Shown as an address.
    #[prost(uint64, optional, tag = "7")]
    pub(crate) pointer_value: Option<u64>,
    #[prost(string, optional, tag = "10")]
    pub(crate) name: Option<String>,
}

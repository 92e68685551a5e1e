//! What an etcd keeps: keys with their revisions, etcd leases, and what happened: as little of it as the
//! registry uses.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::registry::etcd::proto::compare::TargetUnion;
use crate::registry::etcd::proto::event::EventType;
use crate::registry::etcd::proto::{
    Compare, Event, KeyValue, PutRequest, RangeRequest, RangeResponse, ResponseHeader,
};

#[derive(Default)]
pub(super) struct Store {
    pub(super) revision: i64,
    /// What is not later cannot be watched any more.
    pub(super) compacted: i64,
    keys: BTreeMap<Vec<u8>, KeyValue>,
    history: Vec<Event>,
    leases: BTreeMap<i64, (Instant, Duration)>,
    last_lease: i64,
}

impl Store {
    pub(super) fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader { revision: self.revision, ..ResponseHeader::default() })
    }

    pub(super) fn grant(&mut self, seconds: i64) -> i64 {
        self.last_lease += 1;
        let span = Duration::from_secs(seconds as u64);
        self.leases.insert(self.last_lease, (Instant::now() + span, span));
        self.last_lease
    }

    /// Its seconds; 0 if it is not there.
    pub(super) fn keep_alive(&mut self, id: i64) -> i64 {
        self.expire();
        self.leases.get_mut(&id).map_or(0, |(end, span)| {
            *end = Instant::now() + *span;
            span.as_secs() as i64
        })
    }

    /// `false`: it is not there.
    pub(super) fn revoke(&mut self, id: i64) -> bool {
        let there = self.leases.remove(&id).is_some();
        let under = self.keys.values().filter(|kv| kv.lease == id);
        let keys: Vec<Vec<u8>> = under.map(|kv| kv.key.clone()).collect();
        if !keys.is_empty() {
            self.revision += 1;
        }
        keys.iter().for_each(|key| self.take_away(key));
        there
    }

    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        let over: Vec<i64> =
            self.leases.iter().filter(|(_, (end, _))| *end <= now).map(|(id, _)| *id).collect();
        for id in over {
            self.revoke(id);
        }
    }

    /// `false`: its lease is not there.
    pub(super) fn put(&mut self, request: PutRequest) -> bool {
        self.expire();
        if request.lease != 0 && !self.leases.contains_key(&request.lease) {
            return false;
        }
        self.revision += 1;
        self.put_in_this_revision(request);
        true
    }

    fn put_in_this_revision(&mut self, PutRequest { key, value, lease }: PutRequest) {
        let before = self.keys.get(&key);
        let kv = KeyValue {
            create_revision: before.map_or(self.revision, |kv| kv.create_revision),
            mod_revision: self.revision,
            version: before.map_or(0, |kv| kv.version) + 1,
            key: key.clone(),
            value,
            lease,
        };
        self.history.push(Event { r#type: EventType::Put.into(), kv: Some(kv.clone()) });
        self.keys.insert(key, kv);
    }

    /// Puts several at once.
    pub(super) fn put_all(&mut self, requests: Vec<PutRequest>) -> bool {
        self.expire();
        if requests.iter().any(|request| !self.leases.contains_key(&request.lease)) {
            return false;
        }
        self.revision += 1;
        requests.into_iter().for_each(|request| self.put_in_this_revision(request));
        true
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.revision += 1;
        self.take_away(key);
    }

    fn take_away(&mut self, key: &[u8]) {
        if self.keys.remove(key).is_some() {
            let mod_revision = self.revision;
            let kv = KeyValue { key: key.to_vec(), mod_revision, ..KeyValue::default() };
            self.history.push(Event { r#type: EventType::Delete.into(), kv: Some(kv) });
        }
    }

    pub(super) fn holds(&mut self, compare: &Compare) -> bool {
        self.expire();
        let made_in = self.keys.get(&compare.key).map_or(0, |kv| kv.create_revision);
        matches!(compare.target_union, Some(TargetUnion::CreateRevision(wanted)) if wanted == made_in)
    }

    pub(super) fn range(&mut self, request: &RangeRequest) -> RangeResponse {
        self.expire();
        let is_wanted = |key: &Vec<u8>| match request.range_end.is_empty() {
            true => *key == request.key,
            false => request.key <= *key && *key < request.range_end,
        };
        let mut kvs: Vec<KeyValue> = match request.revision {
            0 => self.keys.values().filter(|kv| is_wanted(&kv.key)).cloned().collect(),
            then => {
                let keys = self.as_of(then);
                keys.into_values().filter(|kv| is_wanted(&kv.key)).collect()
            }
        };
        if request.sort_target == 2 {
            kvs.sort_by_key(|kv| kv.create_revision);
        }
        let count = kvs.len() as i64;
        let more = request.limit != 0 && count > request.limit;
        if more {
            kvs.truncate(request.limit as usize);
        }
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        RangeResponse { header: self.header(), kvs, more, count }
    }

    /// What stood there after that revision.
    pub(super) fn as_of(&self, revision: i64) -> BTreeMap<Vec<u8>, KeyValue> {
        let mut keys = BTreeMap::new();
        let then = self.history.iter().filter_map(|event| Some((event, event.kv.as_ref()?)));
        for (event, kv) in then.take_while(|(_, kv)| kv.mod_revision <= revision) {
            match event.r#type() {
                EventType::Put => keys.insert(kv.key.clone(), kv.clone()),
                EventType::Delete => keys.remove(&kv.key),
            };
        }
        keys
    }

    /// What happened from that revision on.
    pub(super) fn since(&self, revision: i64) -> Vec<Event> {
        let later =
            |event: &&Event| event.kv.as_ref().is_some_and(|kv| kv.mod_revision >= revision);
        self.history.iter().filter(later).cloned().collect()
    }
}

use super::listener::LinkCall;
use crate::LendError;
use crate::home::{Home, Settings};
use crate::proto::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::Status;
pub(super) struct Lending;
impl Lending {
    pub(super) fn start(_home: &Home, _settings: &Settings) -> Result<Arc<Lending>, LendError> {
        todo!()
    }
    pub(super) fn devices(&self) -> Vec<Device> {
        todo!()
    }
    pub(super) fn lend(&self, _name: &str, _path: &Path) -> Result<(), Status> {
        todo!()
    }
    pub(super) fn set_duration(&self, _d: Duration) -> Result<(), Status> {
        todo!()
    }
    pub(super) fn borrow(
        &self,
        _host: &str,
        _r: BorrowRequest,
    ) -> Result<mpsc::Receiver<Result<BorrowEvent, Status>>, Status> {
        todo!()
    }
    pub(super) fn renew(&self, _host: &str, _r: &RenewRequest) -> Result<RenewReply, Status> {
        todo!()
    }
    pub(super) fn give_back(&self, _host: &str, _r: &ReturnRequest) -> Result<(), Status> {
        todo!()
    }
    pub(super) fn recall(&self, _d: &str, _w: Duration) -> Result<(), Status> {
        todo!()
    }
    pub(super) fn release(&self, _d: &str) -> Result<(), Status> {
        todo!()
    }
    pub(super) fn connect(&self, _c: &LinkCall) {}
}

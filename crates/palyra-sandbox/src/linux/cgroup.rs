//! stub
#[derive(Debug)]
pub(super) struct Location;
impl Location {
    pub(super) fn find() -> Result<Self, String> {
        Err("not yet".into())
    }
    pub(super) fn describe(&self) -> String {
        String::new()
    }
}

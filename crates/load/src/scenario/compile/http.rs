//! Compiles HTTP requests.

use super::{head, misplaced};
use crate::LoadError;
use crate::protocol::Message;
use crate::protocol::http::HttpRequest;
use crate::scenario::{Action, Devices, Step};
use crate::template::Template;

/// Returns the message of a request step; `common` contains the header fields that all requests of the devices have.
pub fn message(kind: &Devices, common: &[(String, Template)], step: &Step) -> Result<Message, LoadError> {
    let Action::Request(request) = &step.action else { return Err(misplaced(kind, step)) };
    let fields = head(kind, common, &request.fields);
    let request = HttpRequest::new(&request.method, &request.path, &fields, request.body.clone());
    Ok(Message::Http(Box::new(request)))
}

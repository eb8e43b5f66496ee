//! The load generator beside its peers: what a request or a message costs it, whether what it tells is
//! true, and how large it gets.
//!
//! Servers and generators are started on cores of their own where there are two, and take turns in random order. What a peer
//! prints is read by the same code as in `beamtune load import`.

mod echo;
pub mod exchange;
mod family;
pub mod http;
mod mosquitto;
mod mqtt;
mod nginx;
mod peers;
mod place;
mod rabbitmq;
pub mod scale;
mod tool;
mod trial;
pub mod truth;
mod tsung;
mod websocket;

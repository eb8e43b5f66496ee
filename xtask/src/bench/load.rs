//! Compares the load generator with its peers: CPU time per request and per message, accuracy, and scale.
//!
//! Server and generator run on different cores if there are two. Generators run in random order. The results of peers are read by the code
//! of `beamtune load import`.

pub mod accuracy;
mod echo;
pub mod exchange;
pub mod http;
mod mosquitto;
mod mqtt;
mod nginx;
mod peers;
mod placement;
mod process_tree;
mod rabbitmq;
pub mod scale;
mod tool;
mod trial;
mod tsung;
mod websocket;

//! Products: programs whose operators have not written the code. What is known of each stands in `data/products.toml`.

use std::sync::LazyLock;

use beamtune_model::{Period, facts};
use serde::Deserialize;

use super::data;

/// One product.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Product {
    /// What [`facts::PRODUCT`] begins with.
    name: String,
    /// What the names of its nodes begin with by default.
    node: String,
    /// Whether its scripts put the operator's flags behind their own, so that these are meant to be overridden.
    #[serde(default)]
    pub puts_flags_first: bool,
    /// What ends connections on which nothing comes.
    pub silent: Option<String>,
    /// What to change where its listeners accept too slowly.
    pub listeners: Option<Listeners>,
}

/// What a product calls the number of acceptors, the limit of connections and the queue's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listeners {
    /// Of the flags crate.
    pub entry: String,
    pub change: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    product: Vec<Product>,
    kind: Vec<Kind>,
}

/// A kind of a product's processes that pile up because of a setting, or of a client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kind {
    /// The beginning of what they were started with.
    begins: String,
    pub instead: String,
    pub source: String,
}

/// What is known of a kind of processes, by what they were started with.
pub(crate) fn kind(started_with: &str) -> Option<&'static Kind> {
    FILE.kind.iter().find(|kind| started_with.starts_with(&kind.begins))
}

static FILE: LazyLock<File> = LazyLock::new(|| data("products", include_str!("../../data/products.toml")));

/// The product that the node says it runs.
pub(crate) fn of(period: &Period) -> Option<&'static Product> {
    let told = period.facts.get(facts::PRODUCT)?;
    FILE.product.iter().find(|product| told.starts_with(&product.name))
}

/// The name of that product.
pub(crate) fn name(period: &Period) -> Option<&'static str> {
    of(period).map(|product| product.name.as_str())
}

/// Whether the node runs a product. A crash dump names the node only.
pub(crate) fn is_of_others(period: &Period) -> bool {
    let node = period.facts.get(facts::NODE_NAME).unwrap_or_default();
    of(period).is_some() || FILE.product.iter().any(|product| node.starts_with(&product.node))
}

/// The version of a node that runs this product.
pub(crate) fn version<'p>(period: &'p Period, product: &str) -> Option<&'p str> {
    period.facts.get(facts::PRODUCT)?.strip_prefix(product)?.strip_prefix(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_known_by_what_it_says_or_by_its_nodes_name() {
        let with = |fact: &str, value: &str| {
            let mut period = Period::default();
            period.facts.set(fact, value);
            period
        };
        let rabbit = with(facts::PRODUCT, "RabbitMQ 4.1.0");
        assert!(of(&rabbit).is_some_and(|product| product.puts_flags_first));
        assert_eq!(version(&rabbit, "RabbitMQ"), Some("4.1.0"));
        assert_eq!(version(&rabbit, "Rabbit"), None);
        let riak = with(facts::NODE_NAME, "riak@db1");
        assert!(of(&riak).is_none() && is_of_others(&riak));
        assert!(!is_of_others(&with(facts::NODE_NAME, "shop@web1")));
    }

    #[test]
    fn what_to_set_at_listeners_has_an_entry() {
        for listeners in FILE.product.iter().filter_map(|product| product.listeners.as_ref()) {
            assert!(beamtune_flags::entry(&listeners.entry).is_some(), "{}", listeners.entry);
        }
    }
}

//! Products: programs whose operators have not written the code, and so change neither it nor its tables.

use beamtune_model::{Period, facts};

/// Each with the beginning of the name that its nodes have by default.
const PRODUCTS: &[(&str, &str)] = &[
    ("RabbitMQ", "rabbit@"),
    ("ejabberd", "ejabberd@"),
    ("MongooseIM", "mongooseim@"),
    ("EMQX", "emqx@"),
    ("VerneMQ", "VerneMQ@"),
    ("CouchDB", "couchdb@"),
    ("Riak", "riak@"),
];

/// Whether the node runs a product. A crash dump names the node only.
pub(crate) fn is_of_others(period: &Period) -> bool {
    let begins = |fact: &str, with: &str| period.facts.get(fact).is_some_and(|text| text.starts_with(with));
    PRODUCTS.iter().any(|&(product, node)| begins(facts::PRODUCT, product) || begins(facts::NODE_NAME, node))
}

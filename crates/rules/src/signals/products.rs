//! Products, such as RabbitMQ: programs whose operators did not write the code. `data/products.toml` describes each of them.

use std::sync::LazyLock;

use beamtune_model::{Period, SpawnRow, facts};
use serde::Deserialize;

use super::data;

/// One product.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Product {
    /// A prefix of [`facts::PRODUCT`].
    name: String,
    /// The default prefix of the names of its nodes.
    node: String,
    /// Whether its scripts put their own flags before those of the operator, who may thus override them.
    #[serde(default)]
    pub puts_flags_first: bool,
    /// The setting that closes idle connections.
    pub silent: Option<String>,
    /// Its own applications.
    #[serde(default)]
    own: Vec<String>,
    /// Other applications that it ships; empty if unknown.
    #[serde(default)]
    ships: Vec<String>,
    /// Names of the tables that it creates.
    #[serde(default)]
    tables: Vec<String>,
    /// Modules that also create tables for other applications.
    #[serde(default)]
    hosts: Vec<String>,
    /// What to change if its listeners accept too slowly.
    pub listeners: Option<Listeners>,
}

/// What to change in listeners: number of acceptors, limit of connections, and backlog, as the product calls them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listeners {
    /// The entry of the `flags` crate.
    pub entry: String,
    pub change: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Applications of OTP and Elixir.
    otp: Vec<String>,
    product: Vec<Product>,
    kind: Vec<Kind>,
}

/// A kind of a product's processes that accumulate because of a setting or a client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kind {
    /// Prefix of their initial call.
    begins: String,
    pub instead: String,
    pub source: String,
}

/// Returns what is known about a kind of processes, by their initial call.
pub(crate) fn kind(started_with: &str) -> Option<&'static Kind> {
    FILE.kind.iter().find(|kind| started_with.starts_with(&kind.begins))
}

static FILE: LazyLock<File> = LazyLock::new(|| data("products", include_str!("../../data/products.toml")));

/// Returns the product that the node reports.
pub(crate) fn of(period: &Period) -> Option<&'static Product> {
    let told = period.facts.get(facts::PRODUCT)?;
    FILE.product.iter().find(|product| told.starts_with(&product.name))
}

/// Returns the name of that product.
pub(crate) fn name(period: &Period) -> Option<&'static str> {
    of(period).map(|product| product.name.as_str())
}

/// Whether the node runs a product, as it reports or as its name suggests: a crash dump has only the name.
pub(crate) fn is_of_others(period: &Period) -> bool {
    any(period).is_some()
}

/// Who created a table, on a node that runs a product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose<'p> {
    /// The product, or an application that it ships.
    Product,
    /// The operator: the module that created the table, and the application of that module, if any.
    Operator { module: &'p str, application: Option<&'p str> },
    /// Neither the name of the table nor its owner shows who created it.
    Unknown,
    /// Recordings of older versions do not contain it.
    NotRecorded,
}

/// Returns who created a growing table, on a node that runs a product.
pub(crate) fn owner_of_table<'p>(period: &'p Period, id: &str, name: &str) -> Whose<'p> {
    let Some(product) = any(period) else { return Whose::NotRecorded };
    if is_among(&product.tables, name) {
        return Whose::Product;
    }
    let of = |what: &'static str| period.spawns.iter().filter(move |row| row.what == what);
    let mut modules = of(SpawnRow::TABLE_MODULE).filter(|row| row.kind == id).peekable();
    if modules.peek().is_none() {
        return Whose::NotRecorded;
    }
    let Some(module) = modules.find_map(|row| row.creator.as_deref()) else { return Whose::Unknown };
    if is_among(&product.hosts, module) {
        return Whose::Unknown;
    }
    let application =
        of(SpawnRow::TABLE_APPLICATION).find(|row| row.kind == id).and_then(|row| row.creator.as_deref());
    match application {
        // Mnesia owns the tables of all its users.
        Some("mnesia") if !product.tables.is_empty() => Whose::Unknown,
        Some(other)
            if [&product.own, &product.ships, &FILE.otp].iter().any(|names| is_among(names, other)) =>
        {
            Whose::Product
        }
        Some(_) if product.ships.is_empty() => Whose::Unknown,
        application => Whose::Operator { module, application },
    }
}

/// Returns the product that the node reports, or the one that its name suggests.
fn any(period: &Period) -> Option<&'static Product> {
    let node = period.facts.get(facts::NODE_NAME).unwrap_or_default();
    of(period).or_else(|| FILE.product.iter().find(|product| node.starts_with(&product.node)))
}

/// Whether a name is listed, or starts with a listed name that ends in `*`.
fn is_among(names: &[String], name: &str) -> bool {
    names.iter().any(|known| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == known,
    })
}

/// Returns the version of this product, if the node runs it.
pub(crate) fn version<'p>(period: &'p Period, product: &str) -> Option<&'p str> {
    period.facts.get(facts::PRODUCT)?.strip_prefix(product)?.strip_prefix(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_recognized_by_its_own_report_or_by_the_node_name() {
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
    fn the_creator_of_a_table_follows_from_its_name_and_its_module() {
        let whose = |product: &str, name: &str, module: Option<&str>, application: Option<&str>| {
            let mut period = Period::default();
            period.facts.set(facts::PRODUCT, product);
            let row = |what: &str, maker: Option<&str>| SpawnRow {
                what: what.to_owned(),
                kind: name.to_owned(),
                creator: maker.map(str::to_owned),
                ..SpawnRow::default()
            };
            period.spawns = vec![row(SpawnRow::TABLE_MODULE, module)];
            period.spawns.extend(application.map(|name| row(SpawnRow::TABLE_APPLICATION, Some(name))));
            match owner_of_table(&period, name, name) {
                Whose::Operator { .. } => "operator",
                Whose::Product => "product",
                Whose::Unknown => "unknown",
                Whose::NotRecorded => "not recorded",
            }
        };
        let ejabberd = "ejabberd 23.1";
        assert_eq!(whose(ejabberd, "visits", Some("mod_visits"), None), "operator");
        assert_eq!(whose(ejabberd, "visits", Some("ejabberd_sup"), Some("ejabberd")), "unknown");
        assert_eq!(whose(ejabberd, "visits", Some("mnesia_monitor"), Some("mnesia")), "unknown");
        assert_eq!(whose(ejabberd, "muc_online_room", Some("mnesia_monitor"), Some("mnesia")), "product");
        assert_eq!(whose(ejabberd, "roster_item_cache", Some("ets_cache"), Some("cache_tab")), "product");
        let rabbit = "RabbitMQ 3.10.8";
        assert_eq!(whose(rabbit, "connection_metrics", Some("rabbit_metrics"), Some("rabbit")), "product");
        assert_eq!(whose(rabbit, "seen", Some("shop_filter"), Some("shop_plugin")), "operator");
        assert_eq!(whose(rabbit, "seen", None, None), "unknown");
        // The other applications that it ships are unknown.
        assert_eq!(whose("EMQX 5.0.0", "gproc", Some("gproc"), Some("gproc")), "unknown");
        let mut old = Period::default();
        old.facts.set(facts::PRODUCT, rabbit);
        assert_eq!(owner_of_table(&old, "seen", "seen"), Whose::NotRecorded);
    }

    #[test]
    fn each_listener_setting_has_an_entry() {
        for listeners in FILE.product.iter().filter_map(|product| product.listeners.as_ref()) {
            assert!(beamtune_flags::entry(&listeners.entry).is_some(), "{}", listeners.entry);
        }
    }
}

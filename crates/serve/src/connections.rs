//! Which connections a server keeps: a few of each address, more of a client that has shown who it is.
//!
//! *Guarantees.* No address, no client and no group of clients has more connections than its share. While a connection of a stranger is open
//! and old enough, a new client is let in: that connection is closed for it. A connection whose client is known is never
//! closed for another one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub all: usize,
    /// Of one address, as long as nobody knows whose they are.
    pub address: usize,
    /// Of one client that is known.
    pub client: usize,
    /// Of all known clients of one group, where clients have one.
    pub group: usize,
    /// The age from which a stranger's connection is closed for a new one. A client that means well has shown by then
    /// who it is.
    pub spared: Duration,
}

/// The open connections of a server. A clone speaks of the same ones.
#[derive(Clone)]
pub struct Connections {
    bounds: Bounds,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    /// In the order in which they were opened.
    open: BTreeMap<u64, Entry>,
    next: u64,
}

struct Entry {
    address: IpAddr,
    /// None for a stranger.
    client: Option<Client>,
    since: Instant,
    close: CancellationToken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Client {
    name: String,
    group: Option<String>,
}

/// An open connection. A clone speaks of the same one.
#[derive(Clone)]
pub struct Connection {
    connections: Connections,
    number: u64,
    address: IpAddr,
    close: CancellationToken,
}

/// Ends a connection's place when it is dropped.
pub(crate) struct Place(pub Connection);

impl Connections {
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, table: Arc::default() }
    }

    /// A place for a connection from `address`; none when there is no room, and nobody has to make room.
    pub(crate) fn admit(&self, address: IpAddr, now: Instant) -> Option<Place> {
        let mut table = self.lock();
        let is_stranger = |entry: &&Entry| entry.client.is_none();
        let own = |entry: &&Entry| is_stranger(entry) && entry.address == address;
        if table.open.values().filter(own).count() >= self.bounds.address {
            table.close_oldest(now, self.bounds.spared, |entry| own(&entry))?;
        }
        if table.open.len() >= self.bounds.all {
            table.close_oldest(now, self.bounds.spared, |entry| is_stranger(&entry))?;
        }
        let number = table.next;
        table.next += 1;
        let close = CancellationToken::new();
        table.open.insert(number, Entry { address, client: None, since: now, close: close.clone() });
        drop(table);
        Some(Place(Connection { connections: self.clone(), number, address, close }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn close_oldest(&mut self, now: Instant, spared: Duration, which: impl Fn(&Entry) -> bool) -> Option<()> {
        let (number, _) = self.open.iter().find(|(_, entry)| which(entry))?;
        let number = *number;
        if now.duration_since(self.open.get(&number)?.since) < spared {
            return None;
        }
        self.open.remove(&number)?.close.cancel();
        Some(())
    }
}

impl Connection {
    /// The address of the client.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The client has shown that it is this one, of this group. False if one of the two has its share of connections
    /// already; the connection stays as it was then.
    #[must_use]
    pub fn identify(&self, name: &str, group: Option<&str>) -> bool {
        let Connections { bounds, .. } = self.connections;
        let mut table = self.connections.lock();
        let is_it = |client: &Client| client.name == name && client.group.as_deref() == group;
        let known = |entry: &Entry| entry.client.as_ref().is_some_and(is_it);
        if table.open.get(&self.number).is_some_and(known) {
            return true;
        }
        let of_group =
            |entry: &Entry| group.is_some() && entry.client.as_ref().is_some_and(|it| it.group.as_deref() == group);
        let count = |which: &dyn Fn(&Entry) -> bool| table.open.values().filter(|entry| which(entry)).count();
        if count(&known) >= bounds.client || count(&of_group) >= bounds.group {
            return false;
        }
        if let Some(entry) = table.open.get_mut(&self.number) {
            entry.client = Some(Client { name: name.to_owned(), group: group.map(str::to_owned) });
        }
        true
    }

    /// Waits until the connection has to be closed for another one.
    pub(crate) async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.lock().open.remove(&self.0.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const BOUNDS: Bounds = Bounds { all: 6, address: 2, client: 3, group: 4, spared: Duration::from_secs(2) };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_closed(place: &Place) -> bool {
        place.0.close.is_cancelled()
    }

    #[test]
    fn an_address_that_takes_all_it_can_leaves_room_for_others() {
        let (connections, start) = (Connections::new(BOUNDS), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let first: Vec<_> = (0..2).map(|_| connections.admit(address(1), start).unwrap()).collect();
        assert!(connections.admit(address(1), after(1)).is_none(), "its share is used up");
        let other = connections.admit(address(2), after(1)).unwrap();
        let third = connections.admit(address(1), after(2)).unwrap();
        assert!(is_closed(&first[0]), "the oldest of its own makes room");
        assert!(!is_closed(&first[1]) && !is_closed(&other) && !is_closed(&third));
        drop(first);
        assert_eq!(connections.lock().open.len(), 2);
    }

    #[test]
    fn when_all_is_full_the_oldest_stranger_makes_room_and_no_known_client() {
        let (connections, start) = (Connections::new(BOUNDS), Instant::now());
        let mut open: Vec<Place> = Vec::new();
        for last in 1..=6 {
            open.push(connections.admit(address(last), start).unwrap());
        }
        assert!(open[0].0.identify("pod", None));
        assert!(connections.admit(address(7), start + Duration::from_secs(1)).is_none(), "all are young");
        let seventh = connections.admit(address(7), start + Duration::from_secs(2)).unwrap();
        assert_eq!(open.iter().map(is_closed).collect::<Vec<_>>(), [false, true, false, false, false, false]);
        for place in open.iter().skip(2).chain([&seventh]) {
            assert!(place.0.identify(&place.0.address().to_string(), None));
        }
        let late = Instant::now() + Duration::from_secs(3600);
        assert!(connections.admit(address(8), late).is_none(), "none is a stranger");
    }

    #[test]
    fn a_known_client_has_a_share_of_its_own() {
        let (connections, start) = (Connections::new(Bounds { all: 9, ..BOUNDS }), Instant::now());
        let mut open = Vec::new();
        // A known client's connections do not count for its address any more.
        for _ in 0..3 {
            open.push(connections.admit(address(1), start).unwrap());
            assert!(open.last().unwrap().0.identify("pod", None));
        }
        assert!(open[0].0.identify("pod", None), "it is known already");
        let fourth = connections.admit(address(1), start).unwrap();
        assert!(!fourth.0.identify("pod", None));
        assert!(fourth.0.identify("another", None));
        drop(open.pop());
        assert!(connections.admit(address(1), start).unwrap().0.identify("pod", None));
    }
    /// The pods of one namespace took all connections of the hub.
    #[test]
    fn the_clients_of_one_group_took_all_connections() {
        let (connections, start) = (Connections::new(BOUNDS), Instant::now());
        let admitted = |last: u8| connections.admit(address(last), start).unwrap();
        let open: Vec<Place> = (1..=5).map(admitted).collect();
        let identified: Vec<bool> = open
            .iter()
            .zip(["a", "b", "c", "d", "e"])
            .map(|(place, name)| place.0.identify(name, Some("team")))
            .collect();
        assert_eq!(identified, [true, true, true, true, false]);
        assert!(open[4].0.identify("e", Some("other")), "another group has a share of its own");
        assert!(open[0].0.identify("a", Some("team")), "it is known already");
    }
}

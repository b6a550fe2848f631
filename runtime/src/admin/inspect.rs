//! The status of a cluster, for programs without its types.

use crate::directory::RootSeen;
use crate::error::Result;
use crate::io::operations::*;
use crate::memory::usage::HeapUse;
use crate::segment::classes::{CLASSES, Class};
use crate::segment::control;
use crate::segment::grid::Use;
use crate::session::ComputeThread;
use farfield_words::Address;

/// The status of a cluster at a moment: [`ComputeThread::status`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The epoch.
    pub epoch: u64,
    /// The number of processes that were evicted since the cluster was started.
    pub evictions: u64,
    /// True if the memory of dead processes is swept while others live: `farfield memnode --sweep`.
    pub sweeps: bool,
    /// The number of processes that have died, or have left garbage that others kept from being freed, since the last sweep or collection.
    pub uncollected: u64,
    /// The bytes that these processes had in free blocks and in garbage, by their last report, which is at most 40 ms old, on `rdma:` an 8th of a
    /// lease. Objects that they had allocated and not linked are not included.
    pub uncollected_bytes: u64,
    /// The bytes that all sweeps have reclaimed, while other processes lived.
    pub swept_bytes: u64,
    /// The bytes that all collections have reclaimed, while the cluster had no other member.
    pub collected_bytes: u64,
    /// The members of the cluster, including this process.
    pub members: Vec<MemberStatus>,
    /// The memory use of each memory node.
    pub heap: Vec<HeapUse>,
    /// The bytes of chunks that are cut into blocks, by memory node and block size. Size 0 stands for chunks of large objects.
    pub classes: Vec<Vec<(u64, u64)>>,
    /// The named roots.
    pub roots: Vec<RootStatus>,
}

/// A member of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The process's number, unique among all members, past ones included.
    pub number: u32,
    /// The process identifier on its machine.
    pub pid: u32,
    /// The number of heartbeats that it has sent.
    pub heartbeats: u32,
    /// The epoch that it has announced.
    pub epoch: u64,
    /// True if it has died, and is not evicted yet.
    pub is_gone: bool,
    /// True if it is this process.
    pub is_this: bool,
}

/// A named root.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RootStatus {
    /// Its name.
    pub name: String,
    /// The object's address.
    pub address: Address,
    /// The name of its type (the first 55 bytes).
    pub type_name: String,
    /// Its type's layout fingerprint.
    pub fingerprint: u64,
    /// True if its type is described, so that it can be [dumped](ComputeThread::dump).
    pub is_described: bool,
}

impl From<RootSeen> for RootStatus {
    fn from(root: RootSeen) -> Self {
        Self {
            is_described: !root.description.is_null(),
            name: root.name,
            address: root.at,
            type_name: root.type_name,
            fingerprint: root.fingerprint,
        }
    }
}

impl ComputeThread {
    /// Reads the status of the cluster. A few round trips for each memory node.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn status(&self) -> Result<Status> {
        let me = self.process.member().map(|member| member.identity);
        let mut members = Vec::new();
        for member in self.members().await? {
            members.push(MemberStatus {
                number: member.identity,
                pid: member.pid(),
                heartbeats: member.heartbeats(),
                epoch: self.read_word(member.slot()).await?,
                is_gone: member.is_gone(),
                is_this: Some(member.identity) == me,
            });
        }
        let mut classes = Vec::new();
        for node in 0..self.heap().geometry.nodes() {
            classes.push(self.bytes_by_class(node).await?);
        }
        let [exits, collected, _, swept] = self.read_array(control::unclean_exits()).await?;
        let [swept_bytes, collected_bytes] = self.read_array(control::swept_bytes()).await?;
        let [left_bytes, options] = self.read_array(control::left_bytes()).await?;
        Ok(Status {
            sweeps: options & control::SWEEPS != 0,
            uncollected: exits.saturating_sub(collected.max(swept)),
            // May be negative while a sweep and a collection settle their counts.
            uncollected_bytes: left_bytes.cast_signed().max(0).cast_unsigned(),
            swept_bytes,
            collected_bytes,
            epoch: self.read_epoch().await?,
            evictions: self.read_word(control::evictions()).await?,
            members,
            heap: self.heap_use().await?,
            classes,
            roots: self.roots().await?.into_iter().map(RootStatus::from).collect(),
        })
    }

    async fn bytes_by_class(&self, node: u16) -> Result<Vec<(u64, u64)>> {
        let (mut bytes, mut large) = ([0; CLASSES], 0);
        for segment in self.heap().geometry.segments_of(node) {
            for usage in self.read_table(segment).await? {
                match usage {
                    Use::Small(class) => bytes[class.index()] += self.heap().grid.chunk_bytes(),
                    Use::Large(chunks) => large += chunks * self.heap().grid.chunk_bytes(),
                    Use::Untaken | Use::Free | Use::Continued => {}
                }
            }
        }
        let small = (0..CLASSES).filter_map(|index| Some((Class::from_index(index)?.bytes(), bytes[index])));
        Ok(small.chain([(0, large)]).filter(|(_, bytes)| *bytes > 0).collect())
    }
}

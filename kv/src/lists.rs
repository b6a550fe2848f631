//! Lists of pages by their numbers: a page is in one of them, or in none. All operations take constant time, and the memory is that of [`Lists::bytes`], whatever they have.

/// No page.
const NONE: u32 = u32::MAX;
/// In no list.
const NO_LIST: u8 = u8::MAX;

#[derive(Clone, Copy)]
struct Entry {
    before: u32,
    after: u32,
    list: u8,
}

/// Some lists.
pub(crate) struct Lists {
    entries: Box<[Entry]>,
    /// The first and the last page of each.
    ends: Box<[(u32, u32)]>,
    length: usize,
}

impl Lists {
    /// Makes so many empty lists of pages up to a number.
    pub(crate) fn new(lists: u8, pages: u32) -> Self {
        let entry = Entry { before: NONE, after: NONE, list: NO_LIST };
        let entries = vec![entry; pages as usize].into_boxed_slice();
        Self { entries, ends: vec![(NONE, NONE); lists.into()].into_boxed_slice(), length: 0 }
    }

    /// The bytes that so many lists of so many pages take.
    pub(crate) const fn bytes(lists: u8, pages: u32) -> usize {
        pages as usize * size_of::<Entry>() + lists as usize * size_of::<(u32, u32)>()
    }

    /// The number of pages in all lists.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the list that has a page.
    pub(crate) fn list_of(&self, page: u32) -> Option<u8> {
        let list = self.entries.get(page as usize)?.list;
        (list != NO_LIST).then_some(list)
    }

    /// Adds a page at the end of a list. It is removed from the one that has it.
    pub(crate) fn push(&mut self, list: u8, page: u32) {
        self.remove(page);
        let (head, tail) = &mut self.ends[usize::from(list)];
        let before = std::mem::replace(tail, page);
        if before == NONE {
            *head = page;
        } else {
            self.entries[before as usize].after = page;
        }
        self.entries[page as usize] = Entry { before, after: NONE, list };
        self.length += 1;
    }

    /// Removes a page from its list. Returns `false` if it is in none.
    pub(crate) fn remove(&mut self, page: u32) -> bool {
        let Some(list) = self.list_of(page) else { return false };
        let Entry { before, after, .. } = self.entries[page as usize];
        let (head, tail) = &mut self.ends[usize::from(list)];
        if before == NONE {
            *head = after;
        } else {
            self.entries[before as usize].after = after;
        }
        if after == NONE {
            *tail = before;
        } else {
            self.entries[after as usize].before = before;
        }
        self.entries[page as usize] = Entry { before: NONE, after: NONE, list: NO_LIST };
        self.length -= 1;
        true
    }

    /// Removes the first page of a list.
    pub(crate) fn pop(&mut self, list: u8) -> Option<u32> {
        let (head, _) = self.ends[usize::from(list)];
        self.remove(head).then_some(head)
    }

    /// Returns the pages of a list, in order.
    pub(crate) fn pages(&self, list: u8) -> impl Iterator<Item = u32> + '_ {
        let of = |page: u32| (page != NONE).then_some(page);
        std::iter::successors(of(self.ends[usize::from(list)].0), move |page| {
            of(self.entries[*page as usize].after)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn lists_have_what_queues_have() {
        let (mut lists, mut queues) = (Lists::new(3, 20), vec![VecDeque::new(); 3]);
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..10_000 {
            let (list, page) = (rng.random_range(0..3_u8), rng.random_range(0..20_u32));
            match rng.random_range(0..4) {
                0 => {
                    let is_there = queues.iter().any(|queue| queue.contains(&page));
                    assert_eq!(lists.remove(page), is_there);
                    for queue in &mut queues {
                        queue.retain(|other| *other != page);
                    }
                }
                1 => assert_eq!(lists.pop(list), queues[usize::from(list)].pop_front()),
                _ => {
                    lists.push(list, page);
                    for queue in &mut queues {
                        queue.retain(|other| *other != page);
                    }
                    queues[usize::from(list)].push_back(page);
                }
            }
            for (list, queue) in (0..).zip(&queues) {
                assert!(lists.pages(list).eq(queue.iter().copied()));
                assert!(queue.iter().all(|page| lists.list_of(*page) == Some(list)));
            }
            assert_eq!(lists.len(), queues.iter().map(VecDeque::len).sum());
        }
    }
}

//! Arrays that are built one value after the other, and may fail at each.
//!
//! A decoded object is often large: an array of a page's words. So [`try_array`] builds the array in its place. (With an array of
//! `Option`s, or with an `ArrayVec`, which keeps its length in memory, a READ of 64 words takes 3 to 5 times as long as loading them.)

use std::mem::MaybeUninit;

/// The first values of an array, which are dropped unless all of them are built.
///
/// Invariant: `values[..built]` are initialised, and no other code uses them as long as this lives.
struct Partial<'a, T> {
    values: &'a mut [MaybeUninit<T>],
    built: usize,
}

impl<T> Drop for Partial<'_, T> {
    #[inline]
    fn drop(&mut self) {
        for value in &mut self.values[..self.built] {
            // SAFETY: it is initialised by the invariant, and dropped once: nothing uses the values after this.
            unsafe { value.assume_init_drop() };
        }
    }
}

/// Returns `[f(0), …, f(N - 1)]`, or the first error.
#[inline(always)]
#[allow(clippy::inline_always)] // or the values are moved through memory
pub fn try_array<T, E, const N: usize>(mut f: impl FnMut(usize) -> Result<T, E>) -> Result<[T; N], E> {
    let mut values = [const { MaybeUninit::uninit() }; N];
    let mut partial = Partial { values: &mut values, built: 0 };
    for index in 0..N {
        // An error or a panic drops the values before it.
        let value = f(index)?;
        partial.values[index].write(value);
        partial.built = index + 1;
    }
    std::mem::forget(partial);
    // SAFETY: the loop has initialised all `N` values, and an array of `MaybeUninit<T>` has the layout of an array of `T`. They are moved out once:
    // `partial`, which would drop them, is forgotten, and `values` drops nothing.
    Ok(unsafe { std::ptr::from_ref(&values).cast::<[T; N]>().read() })
}

/// Returns `[f(a), f(b), …]`, or the first error.
#[inline]
#[allow(clippy::missing_panics_doc)] // `try_array` asks for as many values as there are
pub fn try_map<T, U, E, const N: usize>(
    values: [T; N],
    mut f: impl FnMut(T) -> Result<U, E>,
) -> Result<[U; N], E> {
    let mut values = values.into_iter();
    try_array(|_| f(values.next().expect("as many as there are")))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;

    #[test]
    fn an_array_has_all_values_in_order() {
        assert_eq!(try_array::<_, (), 3>(|index| Ok(vec![index; index])), Ok([vec![], vec![1], vec![2, 2]]));
        assert_eq!(try_array::<_, (), 0>(|_| Ok(String::new())), Ok([]));
        assert_eq!(try_map([1, 2], |value| Ok::<_, ()>(Box::new(value))), Ok([Box::new(1), Box::new(2)]));
    }

    #[test]
    fn every_value_is_dropped_once_whatever_the_end() {
        let shared = Rc::new(());
        let built = |end: usize, panics: bool| {
            try_array::<_, usize, 4>(|index| match index == end {
                true if panics => panic!("planted"),
                true => Err(index),
                false => Ok(Rc::clone(&shared)),
            })
        };
        for end in 0..4 {
            assert_eq!(built(end, false), Err(end));
            assert_eq!(Rc::strong_count(&shared), 1, "an error at {end}");
            assert!(catch_unwind(AssertUnwindSafe(|| built(end, true))).is_err());
            assert_eq!(Rc::strong_count(&shared), 1, "a panic at {end}");
        }
        let all = built(4, false).unwrap();
        assert_eq!(Rc::strong_count(&shared), 5);
        drop(all);
        assert_eq!(Rc::strong_count(&shared), 1);
    }
}
